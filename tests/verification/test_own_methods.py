"""Test which methods of a model count as the user's own."""
from __future__ import annotations

from typing import Any

from mmengine.model import BaseModel
from torch import nn

from mmexport.verification.own_methods import own_methods


class OwnSegmentor(BaseModel):  # type: ignore[misc]
    def forward(self, inputs: Any) -> Any:
        return inputs

    def predict(self, inputs: Any, data_samples: Any = None) -> Any:
        return None


class OwnHead(nn.Module):
    def predict_by_feat(self) -> None:
        pass


def test_methods_of_the_users_classes_are_named_with_their_lines() -> None:
    model = OwnSegmentor()
    model.head, model.other = OwnHead(), OwnHead()
    first, second = own_methods(model)
    assert first.startswith('OwnSegmentor.predict (test_own_methods.py:')
    assert second.startswith('OwnHead.predict_by_feat (test_own_methods.py:')


def test_upstream_has_none() -> None:
    class Bare(BaseModel):  # type: ignore[misc]
        def forward(self, inputs: Any) -> Any:
            return inputs

    assert own_methods(Bare()) == ()
