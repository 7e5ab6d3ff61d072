"""Find device literals in a TorchScript graph, and make them follow the input. At run time each can be told from the others."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..backends.torchscript.graph import argument, device_of, device_type, is_device_literal, nodes, source_lines
from .findings import Place
from .rules import FACTORIES

# The index of a CPU device marks a literal, and has eight bits; one of them stands for "wherever the input is".
MARKS, HOME = 120, 126


@dataclass(frozen=True)
class Literal:
    """Describe a device constant at one use, input `offset` of `node`; `device` is empty for None."""

    node: Any
    offset: int
    device: str

    @property
    def words(self) -> str:
        return f'{self.node.kind()} without a device' if not self.device else (
            f'{self.node.kind()} with the device {self.device!r} written into the file')

    @property
    def kind(self) -> str:
        return 'literal' if self.device else 'factory'

    @property
    def place(self) -> Place:
        """Return the source line of the node as stored in the file."""
        return ([Place(*line) for line in source_lines(self.node)] or [Place()])[0]


def literals(graph: Any) -> list[Literal]:
    """Return every use of a device constant, in inner blocks too."""
    uses = []
    for node in nodes(graph):
        for offset, value in enumerate(node.inputs()):
            if is_device_literal(value.node()):
                uses.append(Literal(node, offset, value.node().s('value')))
        if node.kind().removeprefix('aten::') in FACTORIES:
            device = argument(node, 'device')
            if device is not None and list(node.inputs())[device].node().mustBeNone():
                uses.append(Literal(node, device, ''))
    return uses


def mark(graph: Any, marked: Sequence[Literal]) -> None:
    """Give each use a constant of its own, so that dispatch can distinguish them. It is a CPU whose index is its number."""
    for number, literal in enumerate(marked):
        literal.node.replaceInput(literal.offset, _marked(graph, literal.node, number))
    inputs = list(graph.inputs())
    # Moving a CPU tensor to ``cpu`` is no operator at all, and moving it to the input's device has to be one.
    for node in [node for node in nodes(graph) if node.kind() == 'prim::device' and list(node.inputs())[0] in inputs]:
        node.output().replaceAllUsesWith(_marked(graph, node, HOME))


def _marked(graph: Any, before: Any, number: int) -> Any:
    constant = graph.create('prim::Constant', 1)
    constant.s_('value', f'cpu:{number}')
    constant.output().setType(device_type())
    constant.insertBefore(before)
    return constant.output()


def follow_input(graph: Any, chosen: Sequence[Literal]) -> None:
    """Replace the devices of `chosen` by that of the file's input."""
    if chosen:
        image = next(value for value in reversed(list(graph.inputs())) if value.type().kind() == 'TensorType')
        device = device_of(graph, image)
        for literal in chosen:
            literal.node.replaceInput(literal.offset, device)
