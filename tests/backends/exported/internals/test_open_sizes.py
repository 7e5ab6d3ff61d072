"""Test that the option of torch.export that leaves sizes open is found in the signatures of the installed torch."""
from __future__ import annotations

from typing import Any

import pytest
import torch

from mmexport.backends.exported.internals.open_sizes import exporter
from mmexport.backends.exported.program import unavailable


def test_the_public_option_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def export(module: Any, args: Any, prefer_deferred_runtime_asserts_over_guards: bool = False) -> Any:
        return prefer_deferred_runtime_asserts_over_guards

    monkeypatch.setattr(torch.export, 'export', export)
    call = exporter()
    assert call is not None and call(None, ()) is True


def test_the_private_one_of_an_older_torch_is_taken_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def _export(module: Any, args: Any, pre_dispatch: bool = False, allow_complex_guards_as_runtime_asserts: bool = False) -> Any:
        return pre_dispatch, allow_complex_guards_as_runtime_asserts

    monkeypatch.setattr(torch.export, 'export', lambda module, args: None)
    monkeypatch.setattr('torch.export._trace._export', _export)
    call = exporter()
    assert call is not None and call(None, ()) == (True, True)


def test_a_torch_without_the_option_is_said_to_be_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.export, 'export', lambda module, args: None)
    monkeypatch.setattr('torch.export._trace._export', lambda module, args: None)
    assert exporter() is None
    assert 'cannot leave the sizes of an exported program open' in str(unavailable())


def test_a_size_that_is_branched_on_becomes_a_check() -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[2] * 3 > x.shape[3] * 2 else x

    call = exporter()
    assert call is not None
    auto = torch.export.Dim.AUTO
    program = call(Branching(), (torch.ones(1, 1, 32, 16),), dynamic_shapes=({2: auto, 3: auto},), strict=False)
    assert torch.equal(program.module()(torch.ones(1, 1, 48, 24)), torch.full((1, 1, 48, 24), 2.0))
    with pytest.raises(Exception, match='assert|guard|Guard|constraint'):
        program.module()(torch.ones(1, 1, 16, 48))
