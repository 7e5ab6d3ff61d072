"""Read an ONNX graph, and name its axes."""
from __future__ import annotations

import re
from typing import Any

from ..examples import AXIS


def input_names(count: int) -> list[str]:
    """Return the inputs: one of a whole model; a part, in the diagnosis, may have more."""
    return ['image', *(f'input_{number}' for number in range(1, count))]


def nodes(proto: Any) -> Any:
    """Yield every node of the graph, of its inner graphs and of its functions."""
    graphs = [proto.graph, *proto.functions]
    while graphs:
        for node in graphs.pop().node:
            yield node
            graphs += [attribute.g for attribute in node.attribute if attribute.HasField('g')]


def name_axes(proto: Any) -> None:
    """Rename the open axes, also in the formulas of the outputs' axes: torch.export numbers them (``s40``)."""
    sides = proto.graph.input[0].type.tensor_type.shape.dim
    names = {sides[axis].dim_param: name for name, axis in AXIS.items() if sides[axis].dim_param}
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for side in value.type.tensor_type.shape.dim:
            if side.dim_param:
                side.dim_param = re.sub(r'\w+', lambda word: names.get(word[0], word[0]), side.dim_param)
