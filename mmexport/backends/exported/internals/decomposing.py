"""Decompose an exported program node by node where the result equals that of the whole.

``ExportedProgram.run_decompositions`` traces the whole program again, including sizes, to replace a few operators, though most nodes
are known to the format that asks and need no more than to be copied.
"""
from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator, OpOverload

from ....utils.skipped import skip
from .inplace import RetraceRequiredError, Writes, functional, is_write

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Table = Mapping[Any, Callable[..., Any]]
# Where a node comes from: what it is decomposed into comes from there too.
ORIGIN = ('nn_module_stack', 'stack_trace', 'source_fn_stack', 'torch_fn')


def decomposed_by_node(program: ExportedProgram) -> ExportedProgram:
    """Return `program` with a ``run_decompositions`` that goes node by node: converters call it with a table of their own.

    An operator of the table is traced alone, on the sizes that the program has noted, and put in its place. An in-place operator becomes
    the one that is not, and what was written to is then what that one returns. Where this would not be the same (see `Writes`; branches
    in the graph; an operator that cannot be traced alone), the whole program is traced as usual.
    """
    as_a_whole = program.run_decompositions

    def run_decompositions(decomp_table: Table | None = None) -> ExportedProgram:
        try:
            return _Rewriting(program, decomp_table).done()
        except RetraceRequiredError:
            return as_a_whole(decomp_table)  # type: ignore[arg-type]
        except Exception as exc:  # Code that depends on torch's internals failed: decomposing the whole program is right too.
            done = as_a_whole(decomp_table)  # type: ignore[arg-type]
            skip('decomposing node by node', f'{type(exc).__name__}: {exc}')
            return done

    return decomposed_by(program, run_decompositions)


def decomposed_by(program: ExportedProgram, run_decompositions: Callable[..., ExportedProgram]) -> ExportedProgram:
    """Return a copy of `program` with another ``run_decompositions``, which is what converters call."""
    other = copy.copy(program)
    other.run_decompositions = run_decompositions  # type: ignore[method-assign]
    return other


class _Rewriting:

    def __init__(self, program: ExportedProgram, table: Table | None) -> None:
        if table is None or any(spec.kind.name != 'USER_OUTPUT' for spec in program.graph_signature.output_specs):
            raise RetraceRequiredError
        self.program, self.table, self.composites = program, dict(table), _kept_composites()
        self.writes, self.graph = Writes(program.graph.nodes), fx.Graph()
        self.now: dict[fx.Node, Any] = {}
        self.sizes: dict[Any, fx.Node] = {}
        self.traces: dict[str, fx.Graph] = {}

    def done(self) -> ExportedProgram:
        with _fakes(self.program):
            for node in self.program.graph.nodes:
                self.now[node] = written = self._written(node)
                if is_write(node):
                    self.now.update(dict.fromkeys(self.writes.stale(node), written))
        self.graph.eliminate_dead_code()
        return self._program()

    def _written(self, node: fx.Node) -> Any:
        target = node.target
        if isinstance(target, HigherOrderOperator):
            raise RetraceRequiredError
        if target is operator.getitem and isinstance(several := self.now[node.args[0]], (list, tuple)):  # type: ignore[index]
            return several[node.args[1]]  # type: ignore[index]
        if not isinstance(target, OpOverload):
            return self._copied(node, self.now)
        target = functional(node) if is_write(node) else target
        if target in self.table:
            return self._inlined(node, self.table[target])
        if target not in self.composites and torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), 'CompositeImplicitAutograd'):
            return self._inlined(node, target)
        return self._copied(node, self.now, target)

    def _copied(self, node: fx.Node, now: Mapping[fx.Node, Any], target: Any = None) -> fx.Node:
        """Copy a node, or for an open size return the first node that had it: every trace inserts size nodes again."""
        value = node.meta.get('val')
        size = value.node.expr if isinstance(value, torch.SymInt) else None
        if size in self.sizes:
            return self.sizes[size]
        if node.target is torch.ops.aten.sym_numel.default and size is not None:
            return self._count(now[node.args[0]], value)  # type: ignore[index, arg-type]
        copied = self.graph.node_copy(node, now.__getitem__)
        copied.target = target or copied.target
        if size is not None:
            self.sizes[size] = copied
        return copied

    def _count(self, tensor: fx.Node, value: torch.SymInt) -> fx.Node:
        """Write the number of elements as a product of sizes: formats have no operator for it."""
        count: Any = 1
        for axis, size in enumerate(tensor.meta['val'].shape):
            if isinstance(size, torch.SymInt) and size.node.expr not in self.sizes:
                self.sizes[size.node.expr] = self._added(torch.ops.aten.sym_size.int, (tensor, axis), size)
            factor: Any = self.sizes[size.node.expr] if isinstance(size, torch.SymInt) else size
            if isinstance(count, int) and (count == 1 or isinstance(factor, int)):
                count = factor if count == 1 else count * factor
            else:
                count = self._added(operator.mul, (count, factor), _value(count) * _value(factor))
        self.sizes[value.node.expr] = count
        return count  # type: ignore[no-any-return]

    def _added(self, target: Callable[..., Any], args: tuple[Any, ...], value: Any) -> fx.Node:
        added = self.graph.call_function(target, args)
        added.meta['val'] = value
        return added

    def _inlined(self, node: fx.Node, decomposition: Callable[..., Any]) -> Any:
        """Replace `node` by the nodes that `decomposition` traces to."""
        from torch.fx.experimental.proxy_tensor import make_fx
        inputs = list(node.all_input_nodes)

        def call(*values: Any) -> Any:
            by_node = dict(zip(inputs, values, strict=True))
            return decomposition(*fx.map_arg(node.args, by_node.__getitem__), **fx.map_arg(node.kwargs, by_node.__getitem__))

        key = _cache_key(node, inputs)
        if key not in self.traces:
            try:
                self.traces[key] = make_fx(call, decomposition_table=self.table)(*(each.meta['val'] for each in inputs)).graph
            except Exception as exc:  # A decomposition may raise anything; the whole trace then reports the error to the user.
                raise RetraceRequiredError from exc
        traced = self.traces[key]
        inner: dict[fx.Node, Any] = dict(zip(traced.find_nodes(op='placeholder'), (self.now[each] for each in inputs), strict=True))
        for each in traced.nodes:
            if each.op == 'get_attr':
                raise RetraceRequiredError
            if each.op == 'call_function':
                inner[each] = self._copied(each, inner)
                inner[each].meta.update({key: node.meta[key] for key in ORIGIN if key in node.meta})
        return fx.map_arg(traced.output_node().args[0], inner.__getitem__)

    def _program(self) -> ExportedProgram:
        from torch.export import ExportedProgram
        program = self.program
        signature = copy.deepcopy(program.graph_signature)
        answers: Any = self.graph.output_node().args[0]
        for spec, answer in zip(signature.output_specs, answers, strict=True):
            if not isinstance(answer, fx.Node):
                raise RetraceRequiredError
            spec.arg.name = answer.name  # type: ignore[union-attr]
        return ExportedProgram(root=program.graph_module, graph=self.graph, graph_signature=signature, state_dict=program.state_dict,
                               range_constraints=program.range_constraints, module_call_graph=program.module_call_graph,
                               example_inputs=program.example_inputs, constants=program.constants, verifiers=program.verifiers)


def _cache_key(node: fx.Node, inputs: Sequence[fx.Node]) -> str:
    """Cache decompositions by the text of a node: a ResNet has sixty norms, and a dozen different ones."""
    labels = {each: f'<{number} {_described(each.meta["val"])}>' for number, each in enumerate(inputs)}
    return f'{node.target} {fx.map_arg((node.args, node.kwargs), labels.__getitem__)}'  # type: ignore[arg-type]


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f'{value.dtype} {value.device} {value.requires_grad} {tuple(value.shape)} {tuple(value.stride())} {value.storage_offset()}'
    return str(value)


def _value(size: Any) -> Any:
    return size.meta['val'] if isinstance(size, fx.Node) else size


def _fakes(program: ExportedProgram) -> Any:
    """Return the mode of the program's fake tensors."""
    values = (node.meta.get('val') for node in program.graph.nodes)
    fake_mode = next((value.fake_mode for value in values if isinstance(value, Tensor) and hasattr(value, 'fake_mode')), None)
    if fake_mode is None:
        raise RetraceRequiredError
    return fake_mode


def _kept_composites() -> set[Any]:
    """Return the composite operators that ``run_decompositions`` keeps unless the table has them."""
    try:
        from torch._export.utils import _collect_all_valid_cia_ops
    except ImportError as exc:
        raise RetraceRequiredError from exc
    return set(_collect_all_valid_cia_ops())
