"""Replace the in-place operators of an exported program by functional ones."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload


class RetraceRequiredError(Exception):
    """Signal that the whole program must be traced again."""


class Writes:
    """Track which nodes hold what is written to.

    Args:
        nodes: of one graph, in their order, with the fake tensors that torch.export notes (``meta['val']``); these share memory where
            the tensors do.

    Raises:
        RetraceRequiredError: what is written to is an input or a weight, or is seen later through another view.
    """

    def __init__(self, nodes: Iterable[fx.Node]) -> None:
        self.place = {node: number for number, node in enumerate(nodes)}
        self.views: dict[int, list[fx.Node]] = defaultdict(list)
        for node in self.place:
            if isinstance(node.meta.get('val'), Tensor):
                self.views[_memory(node)].append(node)
        for node in self.place:
            if is_write(node):
                functional(node)
                self._check(node)

    def stale(self, node: fx.Node) -> list[fx.Node]:
        """Return the nodes whose content is, from `node` on, what `node` has written."""
        return [view for view in self.views[_memory(_written_to(node))] if self.place[view] < self.place[node]]

    def _check(self, node: fx.Node) -> None:
        target = _written_to(node)
        if any(view.op != 'call_function' for view in self.views[_memory(target)]):
            raise RetraceRequiredError
        for view in self.stale(node):
            used_later = any(self.place[user] > self.place[node] for user in view.users)
            if used_later and _geometry(view) != _geometry(target):
                raise RetraceRequiredError


def is_write(node: fx.Node) -> bool:
    return node.op == 'call_function' and isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def functional(node: fx.Node) -> OpOverload:
    """Return the operator that returns what the in-place one of `node` writes: ``relu_`` -> ``relu``.

    Raises:
        RetraceRequiredError: there is none, or it answers in another dtype: in place, ``half += float`` stays half.
    """
    target = node.target
    assert isinstance(target, OpOverload)
    name, others = target._schema.name, target._schema.arguments[1:]
    packet = getattr(torch.ops.aten, name.removeprefix('aten::')[:-1], None) if name.endswith('_') and not name.endswith('__') else None
    operator = getattr(packet, target._overloadname, None)
    if operator is None or operator._schema.is_mutable or any(each.alias_info is not None and each.alias_info.is_write for each in others):
        raise RetraceRequiredError
    dtype = _written_to(node).meta['val'].dtype
    if any(each.meta['val'].dtype != dtype for each in node.all_input_nodes if isinstance(each.meta.get('val'), Tensor)):
        examples: Any = fx.map_arg((node.args, node.kwargs), lambda each: each.meta['val'])
        if operator(*examples[0], **examples[1]).dtype != dtype:
            raise RetraceRequiredError
    return operator  # type: ignore[no-any-return]


def _written_to(node: fx.Node) -> fx.Node:
    target = node.args[0] if node.args else None
    if not isinstance(target, fx.Node) or not isinstance(target.meta.get('val'), Tensor):
        raise RetraceRequiredError
    return target


def _memory(node: fx.Node) -> int:
    return int(node.meta['val'].untyped_storage()._cdata)


def _geometry(node: fx.Node) -> tuple[str, ...]:
    """Compare shapes as text: comparing open sizes would add checks to the program."""
    value = node.meta['val']
    return str(tuple(value.shape)), str(tuple(value.stride())), str(value.storage_offset()), str(value.dtype)
