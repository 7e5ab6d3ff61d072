"""Test which configs a sweep takes, and in which order."""
from __future__ import annotations

import json

import pytest

from mmexport.compat import provide_mmcv_ext
from mmexport.sweep.plan import Job, _by_size, _parameters, configs, jobs, path_of


def test_the_smallest_of_a_folder_stands_for_it() -> None:
    provide_mmcv_ext()
    kind, path = next(iter(_by_size(path_of('mmseg::pidnet/x.py').parent)))
    assert kind == 'PIDNet'
    assert path.name.startswith('pidnet-s_')


def test_the_smallest_is_known_where_rates_are_read_from_a_ramp() -> None:
    """Transformers read their rates of stochastic depth from a linspace, which a build of shapes alone has no numbers for."""
    provide_mmcv_ext()
    folder = path_of('mmseg::segnext/x.py').parent
    sizes = [_parameters(path) for _, path in _by_size(folder)]
    assert sizes == sorted(sizes)
    assert 1e6 < sizes[0] < sizes[-1] < 1e9
    assert 'mscan-t' in next(iter(_by_size(folder)))[1].name


def test_nothing_is_downloaded_to_count_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """LAD reads its teacher's weights while it is built."""
    from mmengine.runner.checkpoint import CheckpointLoader
    monkeypatch.setattr(CheckpointLoader, 'load_checkpoint', lambda *_, **__: pytest.fail('it was downloaded'))
    assert 20e6 < _parameters(path_of('mmdet::lad/lad_r50-paa-r101_fpn_2xb8_coco_1x.py')) < 200e6


def test_a_job_is_one_config_in_all_formats() -> None:
    actual = jobs(['mmseg'], ['torchscript', 'onnx'], match=r'fcn_r18b-d8', images=['a.png'])
    assert [job.config for job in actual] == configs('mmseg', r'fcn_r18b-d8')
    assert {job.backends for job in actual} == {('torchscript', 'onnx')}
    # What the default command chooses, unless another shape is asked for.
    assert {job.shape for job in actual} == {None}
    assert Job.from_dict(json.loads(json.dumps(actual[0].as_dict()))) == actual[0]
