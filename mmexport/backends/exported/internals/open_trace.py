"""Keep the sizes of the example out of what ``torch.onnx.export(dynamo=False)`` writes."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ....errors import first_line
from ....utils.skipped import skip


@contextmanager
def sizes_left_open() -> Iterator[None]:
    """Remove from the exporter's traced graph the sizes that values had; ranks and dtypes stay.

    The exporter infers sizes itself. Where it cannot, it takes the traced one for a constant: behind the unflatten of
    ``nn.MultiheadAttention``, which it writes as slices of a shape, it reshapes to the length that the keys of the example had. Without
    traced sizes it computes them when the file is run. Checked on torch 2.13 (``torch/onnx/_internal/torchscript_exporter/utils.py``,
    which calls ``torch.jit._get_trace_graph``); where there is no such function, nothing is changed.
    """
    original = getattr(torch.jit, '_get_trace_graph', None)
    if original is None:
        skip('the ONNX exporter without traced sizes', 'torch.jit has no _get_trace_graph', 'sizes may be fixed')
        yield
        return

    def traced(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        try:
            _remove_sizes(result[0])
        except Exception as exc:  # A graph with some sizes left is right at the example's size, and other sizes are checked.
            skip('the ONNX exporter without traced sizes', first_line(exc), 'sizes may be fixed')
        return result

    torch.jit._get_trace_graph = traced  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.jit._get_trace_graph = original  # type: ignore[attr-defined]


def _remove_sizes(block: Any) -> None:
    for node in block.nodes():
        for inner in node.blocks():
            _remove_sizes(inner)
        for value in node.outputs():
            kind = value.type()
            if kind.kind() == 'TensorType' and kind.sizes() is not None:
                value.setType(kind.with_sizes([None] * len(kind.sizes())))
