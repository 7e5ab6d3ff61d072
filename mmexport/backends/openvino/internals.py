"""Rewrite a decomposed program in operators that OpenVINO's converter reads right.

Tried on OpenVINO 2026.4.1 with torch 2.8.0, 2.13.0 and 2.14.1. The program computes the same afterwards. After any error here it is
converted as torch decomposes it; the check of the file tells whether OpenVINO reads that right.
"""
from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...ops.op import operators
from ...utils.skipped import skip
from ..exported.internals.decomposing import decomposed_by

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def rewritten_for_openvino(program: ExportedProgram) -> ExportedProgram:
    """Return the decomposed `program` without what OpenVINO 2026.4 cannot read; convert_model decomposes it itself."""
    decompose = program.run_decompositions

    def run_decompositions(*args: Any, **kwargs: Any) -> ExportedProgram:
        try:
            return _rewritten(decompose(*args, **kwargs))
        except Exception as exc:
            done = decompose(*args, **kwargs)
            skip('the rewriting of operators for OpenVINO', f'{type(exc).__name__}: {exc}', 'may be refused')
            return done

    return decomposed_by(program, run_decompositions)


def extensions() -> list[Any]:
    """Return how the converter reads operators of ours; in an exported program they have the name of their overload."""
    from openvino.frontend.pytorch import ConversionExtension
    return [ConversionExtension(f"{each.name.replace('::', '.')}.default", each.openvino) for each in operators()]


def _rewritten(program: ExportedProgram) -> ExportedProgram:
    _without_mod(program.graph)
    _with_bounds(program.graph)
    for spec, answer in zip(program.graph_signature.output_specs, _distinct_outputs(program.graph), strict=True):
        spec.arg.name = answer.name  # type: ignore[union-attr]
    program.graph_module.recompile()
    return program


def _without_mod(graph: fx.Graph) -> None:
    """Replace remainders of sizes, ``a % b``, by ``a - a // b * b``; Twins pads by one."""
    for node in graph.find_nodes(op='call_function', target=operator.mod):
        size, by = node.args
        with graph.inserting_before(node):
            whole = graph.call_function(operator.mul, (graph.call_function(operator.floordiv, (size, by)), by))
            node.replace_all_uses_with(graph.call_function(operator.sub, (size, whole)))
        graph.erase_node(node)


def _with_bounds(graph: fx.Graph) -> None:
    """Write out the axis, start and end of each slice. The program of torch 2.8 leaves them out or gives None."""
    for node in graph.find_nodes(op='call_function', target=torch.ops.aten.slice.Tensor):
        tensor, axis, start, end, *step = node.args + (0, None, None)[len(node.args) - 1:]
        node.args = (tensor, axis, 0 if start is None else start, sys.maxsize if end is None else end, *step)


def _distinct_outputs(graph: fx.Graph) -> list[fx.Node]:
    """Make every output a distinct tensor, because OpenVINO merges clones."""
    end = graph.output_node()
    answers: list[Any] = list(end.args[0])  # type: ignore[arg-type]
    tensors: set[fx.Node] = set()
    for place, answer in enumerate(answers):
        tensor = answer
        while tensor.target in (torch.ops.aten.clone.default, torch.ops.aten.alias.default):
            tensor = tensor.args[0]
        if tensor in tensors:
            operands = (tensor, tensor) if answer.meta['val'].dtype == torch.bool else (tensor, 1)
            identity = torch.ops.aten.logical_and.default if answer.meta['val'].dtype == torch.bool else torch.ops.aten.mul.Scalar
            with graph.inserting_before(end):
                answers[place] = graph.call_function(identity, operands)
            answers[place].meta.update(answer.meta)
        tensors.add(tensor)
    end.args = (tuple(answers),)
    return answers
