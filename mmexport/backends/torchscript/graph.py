"""Read and repair a TorchScript graph."""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

# The numbers that TorchScript writes for floating dtypes.
FLOATS = {5: 'float16', 6: 'float32', 7: 'float64', 15: 'bfloat16'}
# A traced node names lines as ``file.py(12): forward``, a scripted one as ``File "file.py", line 12``.
_LINES = re.compile(r'^(\S+?)\((\d+)\): |File "([^"]+)", line (\d+)', re.MULTILINE)


def nodes(block: Any) -> Iterator[Any]:
    """Yield every node of a graph or block, those of inner blocks too."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes(inner)


def count_kinds(graph: Any) -> Counter[str]:
    return Counter(node.kind() for node in nodes(graph))


def device_literals(graph: Any) -> list[str]:
    """Return devices written into the graph as constants, e.g. ``cpu`` from ``arange(..., device=x.device)`` under a tracer."""
    return [node.s('value') for node in _literals(graph)]


def follow_input_device(graph: Any, first_input: Any) -> int:
    """Replace every device literal by the device of `first_input`; return how many there were.

    A tracer records ``device=x.device`` as the constant it was during the export. ``prim::device(first_input)`` is evaluated on
    every call, so one file serves ``cpu``, ``cuda:0`` and ``cuda:1``; it survives saving and loading.
    """
    literals = list(_literals(graph))
    if literals:
        device = device_of(graph, first_input)
        for node in literals:
            node.output().replaceAllUsesWith(device)
            node.destroy()
    return len(literals)


def device_of(graph: Any, first_input: Any) -> Any:
    """Insert at the top of `graph` a value that is the device of `first_input`."""
    device_node = graph.create('prim::device', [first_input])
    device_node.output().setType(device_type())
    graph.prependNode(device_node)
    return device_node.output()


def _device_of(tensor: Tensor) -> torch.device:
    return tensor.device


@cache
def device_type() -> Any:
    """Return TorchScript's type of devices, for which torch has no public name."""
    return next(torch.jit.script(_device_of).graph.outputs()).type()


def argument_names(schema: str) -> list[str]:
    """Return the names in a schema such as ``aten::sum.dim_IntList(Tensor self, int[1]? dim, *, ScalarType? dtype=None) -> Tensor``."""
    inside, nested = schema[schema.index('(') + 1:schema.rindex(') -> ')], 1
    while nested:
        # Types, aliases and defaults can have commas inside brackets.
        inside, nested = re.subn(r'\[[^\[\]]*\]|\([^()]*\)', '', inside)
    return [argument.split('=')[0].split()[-1] for argument in inside.split(', ') if argument not in ('', '*', '...')]


def is_device_literal(node: Any) -> bool:
    return bool(node.kind() == 'prim::Constant' and node.hasAttribute('value') and node.output().type() == device_type())


def _literals(graph: Any) -> list[Any]:
    return [node for node in nodes(graph) if is_device_literal(node)]


def argument(node: Any, name: str) -> int | None:
    """Return the index of an operator's input with this name in its schema."""
    names = argument_names(node.schema()) if node.kind().startswith('aten::') and '->' in node.schema() else []
    return names.index(name) if name in names else None


def source_lines(node: Any) -> list[tuple[str, int]]:
    """Return file and line of the code that a node was traced from. The innermost is first; torch's own lines are left out."""
    lines = [(one or two, int(three or four)) for one, three, two, four in _LINES.findall(node.sourceRange())]
    model_lines = [line for line in lines if not line[0].startswith('code/__torch__') and '/torch/' not in line[0]]
    return model_lines or lines


def dtype_literals(graph: Any) -> list[dict[str, Any]]:
    """List operators that name a floating dtype, with count and line: there a call in half precision fails or becomes float32.

    The weights of a frozen file are constants too: ``half()`` converts none of them, wherever the literals are.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    for node in nodes(graph):
        at = argument(node, 'dtype')
        value = list(node.inputs())[at] if at is not None else None
        named = value.toIValue() if value is not None and value.node().kind() == 'prim::Constant' else None
        if named in FLOATS:
            file, line = (source_lines(node) or [('', 0)])[0]
            counts[node.kind(), FLOATS[named], f'{"/".join(file.split("/")[-2:])}:{line}'] += 1
    return [dict(op=op, dtype=dtype, at=at, times=times) for (op, dtype, at), times in counts.items()]
