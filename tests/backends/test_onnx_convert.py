"""The optimizer of onnxscript, with its rules tried only where they may match."""
from __future__ import annotations

from collections import Counter
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from mmexport.backends.onnx_convert import rules_where_they_may_match

pytest.importorskip('onnxscript', reason='the ONNX extra is not installed')


def halves() -> Any:
    """Both halves of the last axis, sliced; a graph in which SlicesSplit applies."""
    floats, whole, half = TensorProto.FLOAT, (1, 8), (1, 4)
    numbers = {name: helper.make_tensor(name, TensorProto.INT64, [1], [value])
               for name, value in dict(zero=0, four=4, eight=8, last=1).items()}
    graph = helper.make_graph(
        [helper.make_node('Relu', ['image'], ['x']), helper.make_node('Slice', ['x', 'four', 'eight', 'last'], ['second']),
         helper.make_node('Slice', ['x', 'zero', 'four', 'last'], ['first']), helper.make_node('Mul', ['first', 'second'], ['answer'])],
        'halves', [helper.make_tensor_value_info('image', floats, whole)], [helper.make_tensor_value_info('answer', floats, half)],
        list(numbers.values()), value_info=[helper.make_tensor_value_info('x', floats, whole)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)])


def test_a_rule_of_several_outputs_is_applied_as_ever_and_the_list_put_back() -> None:
    from onnxscript import optimizer, rewriter
    rules = rewriter._DEFAULT_REWRITE_RULES
    usual = optimizer.optimize(halves())
    with rules_where_they_may_match():
        assert rewriter._DEFAULT_REWRITE_RULES is not rules
        found = optimizer.optimize(halves())
    assert rewriter._DEFAULT_REWRITE_RULES is rules
    assert Counter(node.op_type for node in usual.graph.node) == Counter(Relu=1, Split=1, Mul=1)
    assert found.graph.node == usual.graph.node
    onnx.checker.check_model(found)


def test_no_rule_lists_the_graph_for_nodes_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxscript import optimizer
    from onnxscript.rewriter import _matcher
    tried: Counter[str] = Counter()
    match = _matcher.SimplePatternMatcher.match

    def counted(self: Any, model: Any, graph: Any, node: Any, **options: Any) -> Any:
        if not self.pattern.has_single_output_node:
            tried[node.op_type] += 1
        return match(self, model, graph, node, **options)

    monkeypatch.setattr(_matcher.SimplePatternMatcher, 'match', counted)
    with rules_where_they_may_match():
        optimizer.optimize(halves())
    assert set(tried) == {'Slice'}
