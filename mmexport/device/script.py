"""The audit of a saved TorchScript file, which needs nothing of the model that it was made from; and its mending."""
from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from ..errors import InputError
from .finding import Audit, Finding, Place
from .rules import COPIES, METADATA_ONLY, in_place

# The index of a CPU device marks a literal, and has eight bits; one of them stands for "wherever the input is".
MARKS, HOME = 120, 126
# A traced node names lines as ``file.py(12): forward``, a scripted one as ``File "file.py", line 12``.
_LINES = re.compile(r'^(\S+?)\((\d+)\): |File "([^"]+)", line (\d+)', re.MULTILINE)
_INDEX = frozenset({'index', 'index_put', 'index_put_', '_unsafe_index', '_index_put_impl_'})
_FACTORIES = frozenset({'arange', 'zeros', 'ones', 'empty', 'full', 'rand', 'randn', 'randint', 'randperm', 'linspace', 'logspace', 'eye',
                        'scalar_tensor', 'tril_indices', 'triu_indices', 'empty_strided'})


@dataclass(frozen=True)
class Literal:
    """A device constant at one of its uses, input `offset` of `node`; `device` is empty where a factory is given None."""

    node: Any
    offset: int
    device: str

    @property
    def words(self) -> str:
        return f'{self.node.kind()} without a device' if not self.device else (
            f'{self.node.kind()} with the device {self.device!r} written into the file')

    @property
    def kind(self) -> str:
        return 'literal' if self.device else 'factory'

    @property
    def place(self) -> Place:
        """The source line that the file keeps of the node, from the machine that made it."""
        lines = [Place(one or two, int(three or four)) for one, three, two, four in _LINES.findall(self.node.sourceRange())]
        own = [line for line in lines if not line.file.startswith('code/__torch__') and '/torch/' not in line.file]
        return (own or lines or [Place()])[0]


def load_script(path: str | Path) -> Any:
    """The module in eval mode on the CPU, its calls inlined: a literal inside a called function would be missed.

    Raises:
        InputError: the file is no TorchScript file.
    """
    if not Path(path).is_file():
        raise InputError(f'{path}: no such file')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        try:
            module = torch.jit.load(str(path), map_location='cpu').eval()
        except (RuntimeError, ValueError) as exc:
            raise InputError(f'{path} is not a TorchScript file: {str(exc).strip().splitlines()[0][:160]}') from exc
    torch._C._jit_pass_inline(module.graph)
    return module


def audit_script(path: str | Path, image: Tensor, device: str | torch.device = 'cuda') -> Audit:
    """Run the file on the CPU as if it and `image` were on `device`.

    Raises:
        InputError: the file cannot be read, or does not take `image`.
    """
    started = time.perf_counter()
    findings, ops = _watch(path, image)
    return Audit(str(torch.device(device)), tuple(findings.values()), (), ops, time.perf_counter() - started)


def _watch(path: str | Path, image: Tensor) -> tuple[dict[int, Finding], int]:
    """Findings by the number of the literal among `literals`, negative for what names no device; and how many operators ran."""
    count = len(literals(load_script(path).graph))
    findings: dict[int, Finding] = {}
    ops = 0
    # Each round can tell so many literals apart; a file without any is run once, for factories without a device.
    for first in range(0, max(count, 1), MARKS):
        module = load_script(path)
        marked = literals(module.graph)[first:first + MARKS]
        _mark(module.graph, marked)
        mode = _Dispatched(module, image, marked)
        with torch.no_grad(), torch.jit.optimized_execution(False), mode:
            try:
                module(image)
            except Exception as exc:
                raise InputError(f'{path} does not take a tensor of shape {tuple(image.shape)}: '
                                 f'{str(exc).strip().splitlines()[-1][:200]}') from exc
        findings |= {first + mark if mark >= 0 else mark: finding for mark, finding in mode.findings.items()}
        ops = max(ops, mode.ops)
    return findings, ops


def fix_script(path: str | Path, out: str | Path, image: Tensor) -> Audit:
    """Write `out`, in which every device that would fail is the device of the input, and show that it is the same function.

    Devices that meet nothing (a ``.cpu()`` before the end) are left, and listed.

    Raises:
        InputError: the file cannot be read or does not take `image`, or the mended one differs on the CPU.
    """
    started = time.perf_counter()
    wrong, _ = _watch(path, image)
    module = load_script(path)
    found = literals(module.graph)
    chosen = [literal for number, literal in enumerate(found) if number in wrong]
    mended = [f'{literal.words} ({literal.place})' for literal in chosen]
    left = [f'left, for it meets nothing: {literal.words} ({literal.place})' for number, literal in enumerate(found) if number not in wrong]
    draft = Path(out).with_name(f'.{Path(out).name}.draft')
    try:
        _follow_input(module.graph, chosen)
        torch.jit.save(module, str(draft))
        after, ops = _watch(draft, image)
        _check_same(path, draft, image)
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)
    return Audit('cuda', tuple(after.values()), (), ops, time.perf_counter() - started, (*mended, *left))


def literals(graph: Any) -> list[Literal]:
    """Every use of a device constant, in inner blocks too."""
    found = []
    for node in _nodes(graph):
        for offset, value in enumerate(node.inputs()):
            source = value.node()
            if source.kind() == 'prim::Constant' and source.hasAttribute('value') and value.type() == torch._C.DeviceObjType.get():
                found.append(Literal(node, offset, source.s('value')))
        if node.kind().removeprefix('aten::') in _FACTORIES:
            device = _device_argument(node)
            if device is not None and list(node.inputs())[device].node().mustBeNone():
                found.append(Literal(node, device, ''))
    return found


def _device_argument(node: Any) -> int | None:
    """Which input of an operator is its device, by its schema."""
    found = re.findall(r'(\w+)(?:=[^,()]*)?[,)]', node.schema().split('->')[0])
    return found.index('device') if 'device' in found else None


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _mark(graph: Any, marked: Sequence[Literal]) -> None:
    """Give each use a constant of its own, a CPU whose index is its number: dispatch alone sees no difference to the input's device."""
    for number, literal in enumerate(marked):
        literal.node.replaceInput(literal.offset, _marked(graph, literal.node, number))
    inputs = list(graph.inputs())
    # Moving a CPU tensor to ``cpu`` is no operator at all, and moving it to the input's device has to be one.
    for node in [node for node in _nodes(graph) if node.kind() == 'prim::device' and list(node.inputs())[0] in inputs]:
        node.output().replaceAllUsesWith(_marked(graph, node, HOME))


def _marked(graph: Any, before: Any, number: int) -> Any:
    constant = graph.create('prim::Constant', 1)
    constant.s_('value', f'cpu:{number}')
    constant.output().setType(torch._C.DeviceObjType.get())
    constant.insertBefore(before)
    return constant.output()


def _follow_input(graph: Any, chosen: Sequence[Literal]) -> None:
    if chosen:
        device = _device_of_input(graph)
        for literal in chosen:
            literal.node.replaceInput(literal.offset, device)


def _device_of_input(graph: Any) -> Any:
    image = next(value for value in reversed(list(graph.inputs())) if isinstance(value.type(), torch._C.TensorType))
    asked = graph.create('prim::device', [image])
    asked.output().setType(torch._C.DeviceObjType.get())
    graph.prependNode(asked)
    return asked.output()


def _check_same(path: str | Path, out: str | Path, image: Tensor) -> None:
    with torch.no_grad():
        wanted, found = (tree_leaves(load_script(place)(image)) for place in (path, out))
    if len(wanted) != len(found) or not all(torch.equal(one, other) if isinstance(one, Tensor) else one == other
                                            for one, other in zip(wanted, found, strict=True)):
        raise InputError(f'{out} does not equal {path} on the CPU, and must not be used')


class _Dispatched(TorchDispatchMode):
    """Tags by dispatch: 'home' is where the input and the weights are; a number is the literal that a tensor's place comes from."""

    def __init__(self, module: Any, image: Tensor, marked: Sequence[Literal]) -> None:
        super().__init__()
        self.marked = marked
        self.away: dict[int, tuple[Tensor, int]] = {}
        self.findings: dict[int, Finding] = {}
        self.ops = 0
        self._unnamed: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops += 1
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        device = kwargs.get('device')
        if isinstance(device, torch.device):
            kwargs['device'] = torch.device('cpu')
        args = tree_map(lambda value: torch.device('cpu') if isinstance(value, torch.device) else value, args)
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        mark = self._mark_of_result(func, name, device, tensors)
        result = func(*args, **kwargs)
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                self._note(value, mark)
        return result

    def _note(self, tensor: Tensor, mark: int | None) -> None:
        if mark is None:
            self.away.pop(id(tensor), None)
        else:
            # Held, so that its id stays its own.
            self.away[id(tensor)] = (tensor, mark)

    def _mark_of(self, tensor: Tensor) -> int | None:
        return self.away[id(tensor)][1] if id(tensor) in self.away else None

    def _mark_of_result(self, func: Any, name: str, device: torch.device | None, tensors: Sequence[Tensor]) -> int | None:
        if device is not None:
            return device.index if device.index is not None and device.index < len(self.marked) else None
        if not tensors or name in _FACTORIES:
            return self._without_device(name)
        marks = [self._mark_of(tensor) for tensor in tensors]
        return marks[0] if len(set(marks)) == 1 else self._mixed(func, name, tensors, marks)

    def _without_device(self, name: str) -> int:
        mark = self._unnamed.setdefault(name, -1 - len(self._unnamed))
        return mark

    def _mixed(self, func: Any, name: str, tensors: Sequence[Tensor], marks: Sequence[int | None]) -> int | None:
        if name in METADATA_ONLY or name in COPIES:
            return marks[0]
        away = [(tensor, mark) for tensor, mark in zip(tensors, marks, strict=True) if mark is not None]
        if name in _INDEX and marks[0] is None:
            value = [(tensor, mark) for tensor, mark in away if tensor is tensors[-1] and name != 'index' and tensor.dim() > 0]
            away = value if name != 'index' else []
        elif torch.Tag.pointwise in func.tags and all(tensor.dim() == 0 for tensor, _ in away):
            return marks[0] if in_place(name) else None
        if away:
            self._report(name, away[0][1])
        return None

    def _report(self, name: str, mark: int) -> None:
        if mark in self.findings:
            return
        if mark >= 0:
            literal = self.marked[mark]
            self.findings[mark] = Finding(literal.kind, literal.words, literal.place, f'aten::{name}', Place())
        else:
            made_by = next(op for op, own in self._unnamed.items() if own == mark)
            self.findings[mark] = Finding('factory', f'aten::{made_by} without a device', Place(), f'aten::{name}', Place())
