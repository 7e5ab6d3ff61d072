"""Wrap an adapter to return also inputs and outputs of chosen modules.

The taps are outputs of the graph like any other to every format, and call by call the values of a lowered file can be laid beside those
of eager.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..adapters import Adapter
from ..adapters.specs import InputSpec, OutputSpec
from .calls import Call, Recorded, tensors_of, watching

# What of a call is looked at.
INPUT, OUTPUT = 'input', 'output'


@dataclass(frozen=True)
class Values:
    """Hold the adapter's outputs, and inputs and outputs of each call."""

    outputs: list[Tensor]
    inputs_of: Mapping[Call, list[Tensor]]
    outputs_of: Mapping[Call, list[Tensor]]

    def events(self) -> Iterator[tuple[Call, str, list[Tensor]]]:
        """Yield the tensors in the order in which a fault propagates."""
        for call in self.inputs_of:
            yield call, INPUT, self.inputs_of[call]
            yield call, OUTPUT, self.outputs_of[call]


class Tapped(nn.Module):
    """Return the outputs of `adapter`, then the tensors of each of the `recorded` calls."""

    def __init__(self, adapter: Adapter, recorded: Mapping[Call, Recorded]) -> None:
        super().__init__()
        self.adapter = adapter
        self.counts = {call: (len(tensors_of((row.args, row.kwargs))), len(row.outputs)) for call, row in recorded.items()}
        self.eval()

    @property
    def model(self) -> nn.Module:
        return self.adapter.model

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        taps = (OutputSpec(f'tap_{place}', 'float32', (), 'map') for place in range(sum(map(sum, self.counts.values()))))
        return (*self.adapter.specs, *taps)

    @property
    def input_specs(self) -> tuple[InputSpec, ...]:
        return self.adapter.input_specs

    def inputs_of(self, picture: Tensor) -> tuple[Tensor, ...]:
        return self.adapter.inputs_of(picture)

    def run_on(self, picture: Tensor) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = self(*self.inputs_of(picture.clone()))
        return outputs

    def forward(self, image: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        inputs_of: dict[Call, list[Tensor]] = {}
        outputs_of: dict[Call, list[Tensor]] = {}

        # Clones: later code may write into them.
        def before(call: Call, args: Any, kwargs: Any) -> None:
            if call in self.counts:
                inputs_of[call] = [tensor.clone() for tensor in tensors_of((args, kwargs))]

        def after(call: Call, output: Any) -> None:
            if call in self.counts:
                outputs_of[call] = [tensor.clone() for tensor in tensors_of(output)]

        with watching(self.adapter.model, before, after):
            outputs = self.adapter(image, *others)
        return (*outputs, *(tensor for call in self.counts for tensor in (*inputs_of[call], *outputs_of[call])))

    def split(self, outputs: Sequence[Tensor]) -> Values:
        at = len(self.adapter.specs)
        inputs_of, outputs_of = {}, {}
        for call, (inputs, results) in self.counts.items():
            inputs_of[call], outputs_of[call] = list(outputs[at:at + inputs]), list(outputs[at + inputs:at + inputs + results])
            at += inputs + results
        return Values(list(outputs[:len(self.adapter.specs)]), inputs_of, outputs_of)
