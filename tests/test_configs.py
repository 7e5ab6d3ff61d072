"""Test every listed config, small: lowered at one size, right at others, and the other way round."""
from __future__ import annotations

from pathlib import Path

import pytest

from mmexport.export.exporter import Exporter
from tests.tiny import NAMES, SHAPE, seeded, tiny

# How many classes must be decided somewhere: three quarters of what was measured; sliding models answer logits, which decide nothing.
FLOORS = dict(bisenetv2=14, deeplabv3plus=14, fcn=14, hrnet_ocr=14, pointrend=14, pspnet=14, segformer_b0=112, upernet_swin=112,
              knet_upernet=109, mask2former_r50=40, mask2former_r50_ade20k=44, mask2former_swin_t=50, maskformer_r50=13)


def test_the_listed_configs_are_there() -> None:
    assert set(NAMES) >= {
        'mask2former_r50', 'mask2former_swin_t', 'maskformer_r50', 'fcn', 'pspnet', 'deeplabv3plus', 'upernet_swin', 'segformer_b0',
        'bisenetv2', 'hrnet_ocr', 'mask2former_r50_ade20k', 'segmenter_vit_s', 'setr_vit', 'knet_upernet', 'pointrend'}


@pytest.mark.parametrize('name', NAMES)
def test_config_is_right_at_untraced_sizes_and_batches(name: str, tmp_path: Path) -> None:
    cfg = tiny(name, outputs=['raw', 'final'], verify=dict(shapes=[(170, 213), (160, 96)]))
    reports = Exporter(cfg, model=seeded(name), work_dir=tmp_path).run()
    assert [report.outputs for report in reports] == ['raw', 'final']
    for report in reports:
        assert report.passed, report.reasons
        rows = report.checks[0].rows
        assert not report.branches.once, report.branches.once
        # PointRend chooses its points by values, so it is looked at on pictures.
        assert (report.branches.note is None) is (name != 'pointrend'), report.branches.note
        if report.outputs == 'final' and name in FLOORS:
            recorded = report.checks[0].result['classes']['seen']  # type: ignore[index]
            assert len(recorded) >= FLOORS[name], f'{len(recorded)} classes are decided somewhere'
        assert {row.sample for row in rows} >= {'traced', 'same shape', '170x213', '160x96', 'batch 3'}
        assert (tmp_path / report.outputs / 'torchscript' / 'model.pt').is_file()


@pytest.mark.parametrize('name', NAMES)
def test_config_is_right_traced_at_an_odd_size_and_batch(name: str, tmp_path: Path) -> None:
    cfg = tiny(name, outputs='raw', inputs=dict(shape=(2, 3, 161, 97)), verify=dict(shapes=[SHAPE[2:]], batch=1))
    report, = Exporter(cfg, model=seeded(name), work_dir=tmp_path).run()
    assert report.passed, report.reasons
    assert {row.sample for row in report.checks[0].rows} >= {'traced', 'same shape', '128x160', 'batch 1'}
