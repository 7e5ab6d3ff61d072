"""Which configs a sweep takes, and in which order."""
from __future__ import annotations

from mmexport.compat import provide_mmcv_ext
from mmexport.sweep.plan import _by_size, _parameters, configs, jobs, path_of


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


def test_the_other_size_is_never_the_traced_one() -> None:
    for size in ((256, 256), (320, 384)):
        job = jobs(['mmseg'], ['onnx'], size, r'fcn_r18b-d8')[0]
        assert job.size == size
        assert job.other != size


def test_jobs_come_format_by_format() -> None:
    found = jobs(['mmseg'], ['torchscript', 'onnx'], (256, 256), r'fcn_r18b-d8')
    assert [job.backend for job in found] == ['torchscript'] * 2 + ['onnx'] * 2
    assert configs('mmseg', r'fcn_r18b-d8') == [job.config for job in found[:2]]
