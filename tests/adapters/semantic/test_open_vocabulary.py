"""Test SAN made small: the architecture of mmseg's config, a few channels."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmengine.config import Config

from mmexport import Exporter
from mmexport.adapters import OpenVocabulary, build_adapter
from mmexport.inputs.synthetic import picture
from mmexport.seeding.checkpoint import write_checkpoint
from mmexport.sweep.plan import path_of


def small_san() -> Config:
    from mmexport.model.config import load_config
    cfg = load_config(path_of('mmseg::san/san-vit-b16_voc12aug-640x640.py'))
    cfg.model.text_encoder.update(embed_dims=32, num_layers=1, num_heads=2, output_dims=32)
    cfg.model.image_encoder.update(embed_dims=48, num_heads=4)
    head = cfg.model.decode_head
    head.san_cfg.update(clip_channels=48, embed_dims=24, num_queries=12)
    head.san_cfg.cfg_encoder.num_heads = 2
    head.san_cfg.cfg_decoder.update(num_heads=4, embed_channels=16, mlp_channels=16)
    head.maskgen_cfg.update(sos_token_num=12, embed_dims=48, num_heads=4, out_dims=32)
    cfg.export = dict(inputs=dict(shape=(128, 160)), verify=dict(shapes=[(160, 96)], noises=1, batch=3), backends=['torchscript'])
    return cfg


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp('san') / 'san.pth'
    write_checkpoint(small_san(), path)
    return path


def test_masks_and_words_are_exported_and_checked(checkpoint: Path, tmp_path: Path) -> None:
    cfg = small_san()
    cfg.export.outputs = ['raw', 'final']
    reports = Exporter(cfg, str(checkpoint), work_dir=tmp_path).run()
    assert [report.outputs for report in reports] == ['raw', 'final']
    for report in reports:
        rows = report.checks[0].rows
        assert report.artifacts[0].manifest['task'] == 'semantic (open vocabulary)'
        assert {row.sample for row in rows} >= {'traced', '160x96', 'batch 3'}
        assert all(row.passed for row in rows), [row.reason for row in rows]


def test_the_outputs_are_those_of_upstream(checkpoint: Path) -> None:
    from mmexport.model.build import load_model
    model, _ = load_model(small_san(), str(checkpoint))
    adapter = build_adapter(model, outputs='raw')
    assert isinstance(adapter, OpenVocabulary)
    image = picture((1, 3, 128, 160), 0, adapter)
    with torch.no_grad():
        expected = model.predict(image)[0].seg_logits.data  # type: ignore[operator]
        actual = adapter.full_size(adapter.raw(image), image)[0]
    assert torch.allclose(actual, expected, atol=1e-6)


def test_every_parameter_is_set_and_repeatable(checkpoint: Path, tmp_path: Path) -> None:
    """CLIP's text encoder leaves parameters as memory was."""
    write_checkpoint(small_san(), tmp_path / 'again.pth')
    one, other = (torch.load(path, weights_only=False)['state_dict'] for path in (checkpoint, tmp_path / 'again.pth'))
    assert all(bool(tensor.isfinite().all()) for tensor in one.values())
    assert all(torch.equal(one[name], other[name]) for name in one)
