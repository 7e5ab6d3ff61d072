"""Test one run of eager, and its time."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport.verification.eager_run import typical_seconds
from tests.simple import IMAGE


def test_typical_seconds_times_the_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[Any] = []

    def adapter(image: Tensor) -> None:
        requested.append((image, torch.is_grad_enabled()))

    adapter.inputs_of = lambda picture: (picture,)  # type: ignore[attr-defined]

    monkeypatch.setattr('mmexport.verification.eager_run.typical', lambda run, device: (run(), device)[1])
    assert typical_seconds(adapter, IMAGE) == torch.device('cpu')  # type: ignore[arg-type]
    assert requested == [(IMAGE, False)]
