"""Test semantic decisions, from tensor operations, against mmseg's own."""
from __future__ import annotations

import torch

from mmexport.adapters import build_adapter
from mmexport.inputs.synthetic import picture
from mmexport.model.build import build_model
from mmexport.seeding import seed_model
from tests.predicting import predicted
from tests.tiny import SHAPE, seeded, tiny


def test_one_channel_heads_are_thresholded_as_mmseg_does() -> None:
    cfg = tiny('fcn')
    cfg.model.decode_head.update(num_classes=2, out_channels=1, threshold=0.3, loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=True))
    cfg.model.auxiliary_head = None
    model = build_model(cfg)
    seed_model(model)
    adapter = build_adapter(model)
    image = picture(SHAPE, 1, adapter)
    with torch.no_grad():
        labels, scores = adapter(image)
        expected = predicted(adapter, image)['labels']
    assert torch.equal(labels, expected)
    assert set(labels.unique().tolist()) == {0, 1}
    assert torch.equal(labels.bool(), scores > adapter.notes()['one_channel']['threshold'])


def test_a_sliding_config_exports_one_window_and_says_so() -> None:
    adapter = build_adapter(seeded('segmenter_vit_s'))
    assert adapter.notes()['sliding']['window'] == [128, 160]
    assert adapter.notes()['sliding']['stride'] == [85, 107]
