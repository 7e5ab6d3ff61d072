"""The shape of a norm's answer: the same program, without a norm being worked out."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmexport.backends.exported.norm_shapes import NORM, norms_by_shape


class Norms(nn.Module):
    """Norms of a contiguous input, of one in channels last, of one in float64, and one without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(8, affine=False), nn.BatchNorm2d(8)])
        self.fine = nn.BatchNorm2d(8).double()
        self.line = nn.BatchNorm1d(8)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        x = self.conv(image)
        plain, bare = self.norms[0](x), self.norms[1](x)
        last = self.norms[2](x.contiguous(memory_format=torch.channels_last))
        return plain + bare, last, self.fine(x.double()), self.line(x.flatten(2))


def program() -> Any:
    from torch.export import Dim, export
    return export(Norms().eval(), (torch.zeros(2, 3, 16, 24),), dynamic_shapes=({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},))


def values(program: Any) -> list[str]:
    return [f'{node.format_node()} {value.dtype} {value.device} {tuple(value.shape)} {value.stride()}'
            for node in program.graph.nodes if isinstance(value := node.meta.get('val'), Tensor)]


@pytest.fixture
def worked_out(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """Types of the inputs of the norms that torch works out."""
    from torch._decomp import decomposition_table
    usual, found = decomposition_table[NORM], []

    def watched(x: Tensor, *others: Any) -> Any:
        found.append(x.dtype)
        return usual(x, *others)

    monkeypatch.setitem(decomposition_table, NORM, watched)
    return found


def test_the_program_is_the_same_and_plain_norms_are_not_worked_out(worked_out: list[torch.dtype]) -> None:
    from torch._subclasses.fake_impls import FAST_OP_IMPLEMENTATIONS
    usual = values(program())
    usually = worked_out.copy()
    worked_out.clear()
    with norms_by_shape():
        found = values(program())
    assert found == usual
    assert usually.count(torch.float32) >= 4
    # The one in channels last, and the one in float64.
    assert set(worked_out) == {torch.float32, torch.float64} and worked_out.count(torch.float32) < usually.count(torch.float32) / 2
    assert NORM not in FAST_OP_IMPLEMENTATIONS


def test_it_is_put_back_after_an_error() -> None:
    from torch._subclasses.fake_impls import FAST_OP_IMPLEMENTATIONS
    with pytest.raises(ValueError, match='half-way'), norms_by_shape():
        assert NORM in FAST_OP_IMPLEMENTATIONS
        raise ValueError('half-way')
    assert NORM not in FAST_OP_IMPLEMENTATIONS
