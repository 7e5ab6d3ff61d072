"""Test the batch of Mask2Former in mmdet before 3.2, on a head written as that one is."""
from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmexport.patching import Environment, resolve


class Head(nn.Module):
    """Repeat queries as ``Mask2FormerHead.forward`` of mmdet 3.0.0 does."""

    def forward(self, x: list[Tensor], batch_data_samples: list[Any]) -> Tensor:
        batch_img_metas = [sample.metainfo for sample in batch_data_samples]
        batch_size = len(batch_img_metas)
        queries = torch.ones(1, 5, 2).repeat((batch_size, 1, 1))
        return queries * len(x) + x[0].mean(dim=(1, 2, 3))[:, None, None]


class Traced(nn.Module):
    def __init__(self, forward: Any) -> None:
        super().__init__()
        self.head, self.call = Head(), forward

    def forward(self, image: Tensor) -> Any:
        return self.call(self.head, [image, image], [SimpleNamespace(metainfo={}) for _ in range(len(image))])


def test_batch_follows_the_features_in_a_trace() -> None:
    patch, = resolve(['Mask2FormerBatch'])
    model = Traced(patch.replacement('', Head.forward))
    traced = torch.jit.trace(model, (torch.rand(1, 3, 4, 4),), check_trace=False)
    image = torch.rand(3, 3, 4, 4)
    assert torch.equal(traced(image), Traced(Head.forward)(image))
    assert 'len' not in vars(sys.modules[__name__])


@pytest.mark.parametrize(('version', 'applies'), [('3.0.0', True), ('3.1.0', True), ('3.2.0', False), ('3.3.0', False)])
def test_it_applies_before_mmdet_3_2(version: str, applies: bool) -> None:
    patch, = resolve(['Mask2FormerBatch'])
    assert (patch.check(Environment(versions=dict(mmdet=version))) is None) is applies
