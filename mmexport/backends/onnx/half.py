"""Convert weights and arithmetic to float16, except where that is known to be wrong."""
from __future__ import annotations

from typing import Any

# Sums over many values, and exponentials: 11 bits are too few. GridSample multiplies by the fraction of a place.
# ScatterElements has no float16 in ONNX Runtime on a CPU.
KEPT_OPS = ('LayerNormalization', 'InstanceNormalization', 'GroupNormalization', 'BatchNormalization', 'Softmax', 'LogSoftmax',
            'ReduceMean', 'ReduceSum', 'ReduceLogSumExp', 'GridSample', 'ScatterElements')
# Behind these, what reaches a sampling place is a feature and no longer a place.
PROJECTIONS = ('MatMul', 'Gemm', 'Conv')
# How it is checked there, and must be run there.
ON_CPU = ('on a CPU with graph_optimization_level = ORT_ENABLE_EXTENDED: the level above ends the process of ONNX Runtime '
          '(1.24 and 1.25 as reported, 1.31 as seen) on some graphs in float16: microsoft/onnxruntime#28392')


def halved(proto: Any) -> tuple[Any, dict[str, Any]]:
    """Convert `proto` to float16 with float32 inputs and outputs; return it with notes on float32 nodes and CPU use.

    Uses the converter of ``onnxruntime.transformers``, whose own list of operators without a float16 form is kept too.
    """
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel
    places = sampling_locations(proto)
    converted = convert_float_to_float16(proto, keep_io_types=True, op_block_list=[*DEFAULT_OP_BLOCK_LIST, *KEPT_OPS],
                                         node_block_list=places)
    # It puts its casts behind everything.
    sortable = OnnxModel(converted)
    sortable.topological_sort()
    converted = sortable.model
    _drop_repeated(converted.graph)
    # Its notes on types, some of which are those of before.
    del converted.graph.value_info[:]
    present = {node.op_type for node in proto.graph.node}
    float32_nodes = dict(operators=sorted(present & {*DEFAULT_OP_BLOCK_LIST, *KEPT_OPS}), sampling_locations=places)
    return converted, dict(float32=float32_nodes, session=ON_CPU)


def _drop_repeated(graph: Any) -> None:
    """Remove duplicate casts: a value that a node reads twice gets two of one name."""
    cast_results: set[str] = set()
    for node in list(graph.node):
        if node.op_type == 'Cast' and node.output[0] in cast_results:
            graph.node.remove(node)
        cast_results.update(node.output)


def sampling_locations(proto: Any) -> list[str]:
    """Return the nodes that compute the grids of GridSample. They go back to the projections of their offsets.

    A place in 0..1 times a width of 128 leaves 3 bits of a float16 for the fraction of a pixel.
    """
    made_by = {name: node for node in proto.graph.node for name in node.output}
    waiting = [node.input[1] for node in proto.graph.node if node.op_type == 'GridSample']
    location_nodes: dict[str, None] = {}
    while waiting:
        node = made_by.get(waiting.pop())
        if node is None or node.op_type in PROJECTIONS or node.name in location_nodes:
            continue
        location_nodes[node.name] = None
        waiting += node.input
    return sorted(location_nodes)
