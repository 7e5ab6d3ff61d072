"""Provide an adapter of a network of six weights, whose runs are counted and whose outputs a test may change."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mmexport.adapters.base import OutputSpec

SPEC = OutputSpec('logits', 'float32', ('batch', 'class', 'h', 'w'), 'pixels')
LABEL = OutputSpec('labels', 'int32', ('batch', 'h', 'w'), 'labels')


class Plain(nn.Module):
    """Map three channels to two, by weights that can be changed."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)))
        self.register_buffer('empty', torch.zeros(0))


class Simple:
    """Wrap `Plain`, count its runs, and let a test change its outputs."""

    def __init__(self, outputs: str = 'raw', model: nn.Module | None = None) -> None:
        self.model, self.outputs = model or Plain(), outputs
        self.raw_specs = [SPEC]
        self.specs = [SPEC] if outputs == 'raw' else [LABEL]
        self.hidden_specs = [] if outputs == 'raw' else [SPEC]
        self.runs: list[Tensor] = []
        self.choices: tuple[str, ...] = ()
        self.free_choices: tuple[str, ...] = ()
        self.followed: Mapping[str, Tensor] = {}
        self.change: Callable[[Tensor, Tensor], Tensor] = lambda image, logits: logits

    @contextmanager
    def following(self, choices: Mapping[str, Tensor]) -> Iterator[None]:
        assert not choices
        yield

    def double(self) -> Simple:
        self.model.double()
        return self

    def hidden(self, raw: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return raw if self.hidden_specs else ()

    def preprocess(self, image: Tensor) -> Tensor:
        return image

    def inputs_of(self, picture: Tensor) -> tuple[Tensor, ...]:
        return (picture,)

    def network_inputs(self, picture: Tensor) -> tuple[Tensor, ...]:
        return (self.preprocess(picture),)

    def run_with_evidence(self, image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        self.runs.append(image.clone())
        logits = torch.einsum('kc,nchw->nkhw', self.model.weight, image)
        return (self.change(image, logits),), {'seen': image.mean(dim=1)}

    def decide(self, raw: tuple[Tensor, ...], image: Tensor) -> tuple[Tensor, ...]:
        return raw if self.outputs == 'raw' else (raw[0].argmax(dim=1).int(),)

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, seen: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {'margin': raw[0].diff(dim=1).abs()[:, 0]}


def simple(outputs: str = 'raw', model: nn.Module | None = None) -> Any:
    return Simple(outputs, model)


IMAGE = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(3))


def noisy(adapter: Any, off: float, part: slice = slice(None)) -> None:
    """Let noise of 1e-6 move some rows of the logits by `off` of their scale, on pictures of 8x8."""
    def change(image: Tensor, logits: Tensor) -> Tensor:
        if image.shape[-1] == 8 and not any(torch.equal(image, own) for own in adapter.calm):
            logits = logits.clone()
            logits[:, :, part] += off * logits.abs().max()
        return logits

    adapter.calm, adapter.change = [IMAGE], change
