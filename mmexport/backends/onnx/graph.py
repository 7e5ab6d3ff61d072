"""Read an ONNX graph, and name its axes and values."""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from ...adapters.specs import FOLLOWING, IMAGE


def nodes(proto: Any) -> Any:
    """Yield every node of the graph, of its inner graphs and of its functions."""
    graphs = [proto.graph, *proto.functions]
    while graphs:
        for node in graphs.pop().node:
            yield node
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField('g')]


def name_axes(proto: Any, inputs: Sequence[Mapping[str, Any]]) -> None:
    """Rename the open axes, also in the formulas of the outputs' axes: torch.export numbers them (``s40``).

    Args:
        inputs: of the manifest.
    """
    names = {side.dim_param: name for graph_input, spec in zip(proto.graph.input, inputs, strict=True)
             for side, name in zip(graph_input.type.tensor_type.shape.dim, spec.get('axes', IMAGE.axes), strict=True)
             if side.dim_param and name in (*FOLLOWING, *spec.get('ranges', ()))}
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for side in value.type.tensor_type.shape.dim:
            if side.dim_param:
                side.dim_param = re.sub(r'\w+', lambda word: names.get(word[0], word[0]), side.dim_param)


def rename_values(proto: Any, names: Mapping[str, str]) -> None:
    """Rename values of the graph, mostly its inputs and outputs. Another value that has one of the new names gets a free one."""
    graphs = [proto.graph]
    for node in nodes(proto):
        graphs += [attribute.g for attribute in node.attribute if attribute.HasField('g')]
    present = {name for graph in graphs for node in graph.node for name in (*node.input, *node.output)}
    present |= {value.name for graph in graphs for value in (*graph.initializer, *graph.input, *graph.output)}
    changed = dict(names)
    for name in sorted(present & set(names.values()) - names.keys()):
        changed[name] = next(free for free in (f'{name}_{number}' for number in count()) if free not in present | set(names.values()))
    for graph in graphs:
        for node in graph.node:
            node.input[:] = [changed.get(name, name) for name in node.input]
            node.output[:] = [changed.get(name, name) for name in node.output]
        for value in (*graph.initializer, *graph.input, *graph.output, *graph.value_info):
            value.name = changed.get(value.name, value.name)


def lowest_ir(proto: Any) -> int:
    """Return the lowest version of the ONNX format that `proto` can have. Its opsets need one; functions need version 8."""
    from onnx.helper import find_min_ir_version_for
    return max(find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True), 8)
