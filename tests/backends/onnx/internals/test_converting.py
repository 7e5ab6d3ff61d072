"""Test the exporter's passes without what makes them slow: the same graph comes out."""
from __future__ import annotations

from collections import Counter
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, fx, nn

from mmexport.backends.onnx.internals.converting import known_values, rules_where_they_may_match

pytest.importorskip('onnxscript', reason='the ONNX extra is not installed')


def halves() -> Any:
    """Return both halves of the last axis, sliced; a graph in which SlicesSplit applies."""
    floats, whole, half = TensorProto.FLOAT, (1, 8), (1, 4)
    numbers = {name: helper.make_tensor(name, TensorProto.INT64, [1], [value])
               for name, value in dict(zero=0, four=4, eight=8, last=1).items()}
    graph = helper.make_graph(
        [helper.make_node('Relu', ['image'], ['x']), helper.make_node('Slice', ['x', 'four', 'eight', 'last'], ['second']),
         helper.make_node('Slice', ['x', 'zero', 'four', 'last'], ['first']), helper.make_node('Mul', ['first', 'second'], ['answer'])],
        'halves', [helper.make_tensor_value_info('image', floats, whole)], [helper.make_tensor_value_info('answer', floats, half)],
        list(numbers.values()), value_info=[helper.make_tensor_value_info('x', floats, whole)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)])


def test_rule_of_several_outputs_is_applied_and_restored() -> None:
    from onnxscript import optimizer, rewriter
    rules = rewriter._DEFAULT_REWRITE_RULES
    usual = optimizer.optimize(halves())
    with rules_where_they_may_match():
        assert rewriter._DEFAULT_REWRITE_RULES is not rules
        actual = optimizer.optimize(halves())
    assert rewriter._DEFAULT_REWRITE_RULES is rules
    assert Counter(node.op_type for node in usual.graph.node) == Counter(Relu=1, Split=1, Mul=1)
    assert actual.graph.node == usual.graph.node
    onnx.checker.check_model(actual)


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


class Mixed(nn.Module):
    """Mix whole numbers and floats in one expression, a square root and a mean of whole numbers, a number where a tensor may be."""

    def forward(self, image: Tensor) -> Tensor:
        whole = image.to(torch.int64)
        rows = torch.arange(image.shape[-1], device=image.device)
        return (image * rows + whole.sqrt() + 2 * whole).mul(whole > 3) / (rows + 1) + whole.sum(dim=-1, keepdim=True) ** 0.5


def promotions(with_known_values: bool) -> tuple[list[str], list[str]]:
    """Return the nodes after the pass, in words; and the nodes that it computed anew."""
    from torch.export import Dim, export
    from torch.onnx._internal.exporter._fx_passes import insert_type_promotion_nodes
    sides = {0: Dim.AUTO, 3: Dim.AUTO}
    module = export(Mixed(), (torch.zeros(2, 3, 8, 16),), dynamic_shapes=(sides,)).run_decompositions({}).module(check_guards=False)
    computed: list[str] = []
    compute = fx.Interpreter.run_node

    def watched(interpreter: fx.Interpreter, node: fx.Node) -> Any:
        computed.append(node.name)
        return compute(interpreter, node)

    with pytest.MonkeyPatch.context() as watch:
        watch.setattr(fx.Interpreter, 'run_node', watched)
        if with_known_values:
            with known_values():
                insert_type_promotion_nodes(module)
        else:
            insert_type_promotion_nodes(module)
    return [f'{node.format_node()} {node.meta.get("val")}' for node in module.graph.nodes], computed


def test_promotions_are_the_same_with_known_values() -> None:
    from torch.onnx._internal.fx.passes.type_promotion import _TypePromotionInterpreter
    usual = _TypePromotionInterpreter.run_node
    there, every = promotions(with_known_values=False)
    here, computed = promotions(with_known_values=True)
    assert here == there
    assert any('convert_element_type' in node for node in here)
    assert 0 < len(computed) < len(every)
    assert _TypePromotionInterpreter.run_node is usual


def test_where_a_fast_path_fails_the_exporter_converts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from mmexport.backends.onnx.internals import converting
    reasons: dict[str, str] = {}
    monkeypatch.setattr('mmexport.utils.skipped._lines', reasons)

    def changed(program: Any) -> Any:
        raise AttributeError('it was renamed')

    program = torch.export.export(Mixed(), (torch.zeros(2, 3, 8, 16),))
    usual = converting.converted(program, 18, ['answer'], ['image'])
    assert not reasons
    monkeypatch.setattr(converting, 'decomposed_by_node', changed)
    made = converting.converted(program, 18, ['answer'], ['image'])
    assert list(reasons.values()) == ['slower than usual: the fast conversion to ONNX was skipped: AttributeError: it was renamed']
    assert Counter(node.op_type for node in made.graph.node) == Counter(node.op_type for node in usual.graph.node)


def test_an_error_of_the_exporter_itself_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    from mmexport.backends.onnx.internals import converting
    reasons: dict[str, str] = {}
    monkeypatch.setattr('mmexport.utils.skipped._lines', reasons)
    monkeypatch.setattr(converting, '_converted', lambda *given: (_ for _ in ()).throw(ValueError('no such operator')))
    with pytest.raises(ValueError, match='no such operator'):
        converting.converted(torch.export.export(Mixed(), (torch.zeros(2, 3, 8, 16),)), 18, ['answer'], ['image'])
    assert not reasons
