"""Reading and mending a TorchScript graph."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch


def nodes(block: Any) -> Iterator[Any]:
    """Every node of a graph or block, those of inner blocks too."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes(inner)


def count_kinds(graph: Any) -> Counter[str]:
    return Counter(node.kind() for node in nodes(graph))


def device_literals(graph: Any) -> list[str]:
    """Devices written into the graph as constants, e.g. ``cpu`` from ``arange(..., device=x.device)`` under a tracer."""
    return [node.s('value') for node in _literals(graph)]


def follow_input_device(graph: Any, image: Any) -> int:
    """Let every device literal be the device of `image`; returns how many there were.

    A tracer records ``device=x.device`` as the constant it was on the day of the export. ``prim::device(image)`` asks again on
    every call, so one file serves ``cpu``, ``cuda:0`` and ``cuda:1``; it survives saving and loading.
    """
    literals = list(_literals(graph))
    if literals:
        device = device_of(graph, image)
        for node in literals:
            node.output().replaceAllUsesWith(device)
            node.destroy()
    return len(literals)


def device_of(graph: Any, image: Any) -> Any:
    """A value that is the device of `image` on every call, asked for at the top of `graph`."""
    asked = graph.create('prim::device', [image])
    asked.output().setType(torch._C.DeviceObjType.get())
    graph.prependNode(asked)
    return asked.output()


def is_device_literal(node: Any) -> bool:
    return bool(node.kind() == 'prim::Constant' and node.hasAttribute('value') and node.output().type() == torch._C.DeviceObjType.get())


def _literals(graph: Any) -> list[Any]:
    return [node for node in nodes(graph) if is_device_literal(node)]
