"""Find out whether torch's ONNX exporter translates the loops of an exported program. Tried on torch 2.8.0, which has none, and 2.13.0."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ....utils.skipped import skip

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def has_loops(program: ExportedProgram) -> bool:
    """Return whether `program` has a ``while_loop``: suppression of boxes does."""
    return any(getattr(node.target, '__name__', '') == 'while_loop' for node in program.graph.nodes)


def translates_loops() -> bool:
    """Return whether the exporter has a translation; if its list is not where it was, it is taken to have none."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
        return bool(ONNXRegistry.from_torchlib().is_registered(torch.ops.higher_order.while_loop))
    except Exception as exc:
        skip("the list of what torch's ONNX exporter translates", f'{type(exc).__name__}: {exc}', 'models with loops are traced')
        return False
