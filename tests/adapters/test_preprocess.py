"""Test the data_preprocessor as we read it, held to the model's own."""
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mmexport import Exporter
from mmexport.adapters.preprocess import Preprocess
from mmexport.compat import provide_mmcv_ext
from mmexport.errors import ConfigError
from tests.tiny import seeded, tiny


def kinds() -> tuple[Any, Any]:
    """Return mmseg's class, and a user's own that brings pictures to 0..1 first."""
    provide_mmcv_ext()
    from mmseg.models.data_preprocessor import SegDataPreProcessor

    class Unit(SegDataPreProcessor):
        def forward(self, data: dict[str, Any], training: bool = False) -> dict[str, Any]:
            actual: dict[str, Any] = super().forward({**data, 'inputs': [picture.float() / 255 for picture in data['inputs']]}, training)
            return actual

    return SegDataPreProcessor, Unit


def model_with(kind: Any, **options: Any) -> nn.Module:
    model = nn.Module()
    model.data_preprocessor = kind(mean=[123.7, 116.3, 103.5], std=[58.4, 57.1, 57.4], **options)
    return model


@pytest.mark.parametrize('options', [{}, dict(bgr_to_rgb=True), dict(test_cfg=dict(size_divisor=64), pad_val=0, seg_pad_val=255)])
@pytest.mark.parametrize('inside', [False, True])
def test_mmsegs_own_is_read_rightly(options: dict[str, Any], inside: bool) -> None:
    model = model_with(kinds()[0], **options)
    preprocess = Preprocess.of(model, inside)
    preprocess.check_against(model)
    assert preprocess.describe()['mean'] == pytest.approx([123.7, 116.3, 103.5])


def test_the_order_of_six_channels_follows_the_model() -> None:
    """mmseg swaps three channels and no others."""
    model = nn.Module()
    model.data_preprocessor = kinds()[0](mean=[123.7, 116.3, 103.5] * 2, std=[58.4, 57.1, 57.4] * 2, bgr_to_rgb=True)
    preprocess = Preprocess.of(model, inside=True)
    assert preprocess.flip
    preprocess.check_against(model)
    assert not preprocess.flip
    assert preprocess.describe()['swaps_bgr_rgb'] is False


def test_users_own_data_preprocessor_is_described_as_such() -> None:
    model = model_with(kinds()[1])
    with pytest.raises(ConfigError, match='the Unit of this model does not make'):
        Preprocess.of(model, inside=True).check_against(model)
    outside = Preprocess.of(model, inside=False)
    outside.check_against(model)
    assert 'mean' not in outside.describe()
    assert "the model's own data_preprocessor" in outside.describe()['expects']


@pytest.mark.parametrize('habit', ['brightens dark ones', 'takes ones for white', 'halves large ones'])
def test_one_that_treats_some_pictures_otherwise_is_found(habit: str) -> None:
    """A picture of random numbers alone is neither dark nor large."""
    class Habit(kinds()[0]):  # type: ignore[misc]
        def forward(self, data: dict[str, Any], training: bool = False) -> dict[str, Any]:
            pictures = [picture.float() for picture in data['inputs']]
            if habit == 'brightens dark ones':
                pictures = [picture * 2 if picture.mean() < 80 else picture for picture in pictures]
            if habit == 'takes ones for white':
                pictures = [picture * 255 if picture.max() <= 1 else picture for picture in pictures]
            if habit == 'halves large ones':
                pictures = [picture / 2 if max(picture.shape) > 600 else picture for picture in pictures]
            actual: dict[str, Any] = super().forward({**data, 'inputs': pictures}, training)
            return actual

    model = model_with(Habit)
    with pytest.raises(ConfigError, match='the Habit of this model does not make'):
        Preprocess.of(model, inside=True).check_against(model)
    outside = Preprocess.of(model, inside=False)
    outside.check_against(model)
    assert 'mean' not in outside.describe()


def test_a_picture_that_the_model_refuses_is_ignored() -> None:
    class Small(kinds()[0]):  # type: ignore[misc]
        def forward(self, data: dict[str, Any], training: bool = False) -> dict[str, Any]:
            if max(data['inputs'][0].shape) > 600:
                raise ValueError('too large')
            actual: dict[str, Any] = super().forward(data, training)
            return actual

    model = model_with(Small)
    preprocess = Preprocess.of(model, inside=True)
    preprocess.check_against(model)
    assert not preprocess.unrecognised


def test_the_exporter_asks(tmp_path: Path) -> None:
    model = copy.deepcopy(seeded('fcn'))
    theirs = model.data_preprocessor
    model.data_preprocessor = kinds()[1](mean=theirs.mean.flatten().tolist(), std=theirs.std.flatten().tolist())  # type: ignore[union-attr, operator]
    with pytest.raises(ConfigError, match='Unit'):
        Exporter(tiny('fcn', inputs=dict(normalize=True)), work_dir=tmp_path, model=model).run()


def test_padding_inside_the_graph_is_of_the_picture() -> None:
    """Nobody can pad after a normalisation that the file does."""
    preprocess = Preprocess.of(seeded('fcn'), inside=True)
    described = preprocess.describe()['padding']
    assert described['when'] == 'before the normalisation, which the file does'
    value = torch.tensor(described['value']).view(1, -1, 1, 1)
    torch.testing.assert_close(preprocess.normalize(value), torch.full_like(value, preprocess.padding.value), rtol=0, atol=1e-5)


def test_padding_of_mmseg_mask2former_follows_test_cfg() -> None:
    """mmseg pads to what ``test_cfg`` says when it predicts, and its own size is of training."""
    padding = Preprocess.of(seeded('mask2former_r50_ade20k'), inside=False).describe()['padding']
    assert padding['divisor'] == 32
    model = model_with(kinds()[0], size=(512, 512), test_cfg=dict(size_divisor=32))
    preprocess = Preprocess.of(model, inside=False)
    preprocess.check_against(model)
    padding = preprocess.describe()['padding']
    assert (padding['divisor'], padding['size'], padding['sides']) == (32, None, 'right and bottom')
