"""Call ``torch.onnx.export`` on an exported program, without its slow parts."""
from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ....ops.op import operators
from ....utils.skipped import skip
from ...exported.internals.decomposing import decomposed_by_node
from ..graph import rename_values

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def converted(program: ExportedProgram, opset: int, names: Sequence[str], inputs: Sequence[str]) -> Any:
    """Return the ONNX model (a ``ModelProto``) of `program` with outputs `names` and `inputs`; raise what the exporter raises."""
    try:
        with rules_where_they_may_match(), known_values():
            return _converted(decomposed_by_node(program), opset, names, inputs)
    except Exception as exc:  # A fast path or the exporter itself failed: the exporter alone is tried.
        proto = _converted(program, opset, names, inputs)
        skip('the fast conversion to ONNX', f'{type(exc).__name__}: {exc}')
        return proto


def _converted(program: ExportedProgram, opset: int, names: Sequence[str], inputs: Sequence[str]) -> Any:
    # The exporter does not see that a value inside has the name of an output, for example ``mean``, and writes a graph that is not valid.
    reserved = {f'mmexport_{kind}_{number}': name for kind, group in (('input', inputs), ('output', names))
                for number, name in enumerate(group)}
    ports = list(reserved)
    exported = torch.onnx.export(program, dynamo=True, opset_version=opset, verbose=False, input_names=ports[:len(inputs)],
                                 output_names=ports[len(inputs):],
                                 custom_translation_table={each.define(): each.onnx for each in operators()})
    assert exported is not None
    proto = exported.model_proto
    rename_values(proto, reserved)
    return proto


@contextmanager
def rules_where_they_may_match() -> Iterator[None]:
    """Limit the onnxscript optimizer's rules of several outputs. They are tried on nodes of the operator of their first output.

    It tries such a rule (SlicesSplit is one) on every node, and lists the whole graph each time, which of a large
    graph takes longer than all else. A node of another kind never matches, so the graph is the same. Checked on onnxscript 0.7.2
    (``rewriter/_matcher.py``); where there is no such list of rules, nothing is changed.
    """
    from onnxscript import rewriter
    rules = getattr(rewriter, '_DEFAULT_REWRITE_RULES', None)
    if rules is None:
        skip("onnxscript's rules where they may match", 'onnxscript.rewriter has no _DEFAULT_REWRITE_RULES')
        yield
        return
    rewriter._DEFAULT_REWRITE_RULES = tuple(map(_where_it_may_match, rules))  # type: ignore[assignment]
    try:
        yield
    finally:
        rewriter._DEFAULT_REWRITE_RULES = rules


def _where_it_may_match(rule: Any) -> Any:
    pattern = getattr(rule, '_target_pattern', None)
    if pattern is None or pattern.has_single_output_node:
        return rule
    kind = pattern.output_nodes[0].op_identifier()
    if kind is None:
        return rule
    other = copy.copy(rule)

    def try_rewrite(model: Any, graph: Any, node: Any, **options: Any) -> Any:
        return rule.try_rewrite(model, graph, node, **options) if node.op_identifier() == kind else None

    other.try_rewrite = try_rewrite
    return other


@contextmanager
def known_values() -> Iterator[None]:
    """Let the exporter's type promotion pass reuse a node's stored value. It would compute the value again.

    It runs the whole graph on fake tensors, sizes and all, to know the types that it compares; a promotion ends in the type that was
    there before, so what is noted stays true, and the graph is the same. Checked on torch 2.13
    (``torch/onnx/_internal/fx/passes/type_promotion.py``); where there is no such pass, nothing is changed.
    """
    try:
        from torch.onnx._internal.fx.passes import type_promotion
        interpreter, rule_of = type_promotion._TypePromotionInterpreter, type_promotion.get_type_promotion_rule
    except Exception as exc:
        skip("the ONNX exporter's type promotion with known values", f'{type(exc).__name__}: {exc}')
        yield
        return
    compute = interpreter.run_node

    def run_node(self: Any, node: Any) -> Any:
        if node.op != 'call_function' or 'val' not in node.meta:
            return compute(self, node)
        if rule := rule_of(node, self.type_promotion_table):
            with self._set_current_node(node):
                self._maybe_promote_node(node, rule)
        return node.meta['val']

    interpreter.run_node = run_node  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        interpreter.run_node = compute  # type: ignore[method-assign]
