"""Test pictures of other than three channels: two in one tensor (change detection), or more bands."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mmexport import Exporter
from mmexport.errors import InputError
from mmexport.inputs.shapes import traced_shape
from mmexport.model.build import build_model
from mmexport.model.config import export_section
from mmexport.seeding import seed_model
from tests.tiny import tiny

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def _six(**export: object) -> object:
    cfg = tiny('fcn', outputs='raw', inputs=dict(shape=(128, 160)), **export)
    cfg.model.data_preprocessor.update(mean=MEAN * 2, std=STD * 2)
    cfg.model.backbone.in_channels = 6
    return cfg


@pytest.mark.parametrize('normalize', [False, True])
def test_six_channels_are_exported_and_checked(tmp_path: Path, normalize: bool) -> None:
    cfg = _six(backends=['torchscript'])
    cfg.merge_from_dict({'export.inputs.normalize': normalize})  # type: ignore[attr-defined]
    model = build_model(cfg)  # type: ignore[arg-type]
    seed_model(model)
    report, = Exporter(cfg, work_dir=tmp_path, model=model).run()  # type: ignore[arg-type]
    assert report.passed, report.reasons
    assert report.artifacts[0].manifest['inputs'][0]['traced'][1] == 6
    run = torch.jit.load(str(report.artifacts[0].file))
    with pytest.raises(Exception, match='axis channel of image has size 3, and this file takes 6 only'):
        run(torch.zeros(1, 3, 128, 160))


def test_each_of_two_pictures_is_swapped() -> None:
    from mmexport.adapters.preprocess import Preprocess
    twice = Preprocess(torch.tensor(MEAN * 2), torch.tensor(STD * 2), flip=True, inside=True)
    picture = torch.rand(1, 6, 4, 4) * 255
    once = Preprocess(torch.tensor(MEAN), torch.tensor(STD), flip=True, inside=True)
    assert torch.equal(twice(picture), torch.cat([once(picture[:, :3]), once(picture[:, 3:])], dim=1))
    assert torch.allclose(twice.undo(twice(picture)), picture, atol=1e-3)


def test_another_number_of_channels_is_refused(photograph_file: Path, tmp_path: Path) -> None:
    cfg = _six()
    cfg.merge_from_dict({'export.inputs.shape': (1, 3, 128, 160)})  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r'\(N, 6, H, W\)'):
        traced_shape(cfg, export_section(cfg))  # type: ignore[arg-type]
    cfg = _six()
    cfg.merge_from_dict({'export.inputs.image': str(photograph_file)})  # type: ignore[attr-defined]
    with pytest.raises(InputError, match='takes 6 channels'):
        Exporter(cfg, work_dir=tmp_path, model=build_model(cfg)).run()  # type: ignore[arg-type]


def test_four_channels_have_no_order_to_swap() -> None:
    from mmexport.adapters.preprocess import Preprocess
    from mmexport.errors import ConfigError
    cfg = tiny('fcn')
    cfg.model.data_preprocessor.update(mean=[*MEAN, 0.0], std=[*STD, 1.0], bgr_to_rgb=True)
    cfg.model.backbone.in_channels = 4
    with pytest.raises(ConfigError, match='swaps BGR and RGB of 4 channels'):
        Preprocess.of(build_model(cfg), inside=False)
