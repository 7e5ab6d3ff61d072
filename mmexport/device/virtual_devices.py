"""Track the device that each tensor would be on while a model runs."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..compat.pytree import tree_leaves, tree_map
from . import rules
from .findings import Branch, Finding, Place
from .result_devices import ResultDevices
from .tags import CPU, HALVES, Tag, Tags

_TYPE_NAMES = {torch.float32: 'Float', torch.float64: 'Double', torch.float16: 'Half', torch.bfloat16: 'BFloat16', torch.int64: 'Long',
               torch.int32: 'Int', torch.int16: 'Short', torch.int8: 'Char', torch.uint8: 'Byte', torch.bool: 'Bool'}


class VirtualDevices(TorchFunctionMode):
    """Tag every tensor with a virtual device. The tags follow PyTorch's rules; device queries are answered from them.

    Queries must be answered: code that reads ``x.device`` and uses it is right, and would look wrong if it read ``cpu``.
    After a fault the result counts as on the right device, so that one cause is one finding.
    """

    def __init__(self, target: torch.device, tags: Tags) -> None:
        super().__init__()
        self.target, self.tags = target, tags
        self.results = ResultDevices(target, tags)
        self.branches: dict[tuple[str, Place], Branch] = {}
        self.ops = 0
        # Devices that were answered or written out, by identity: what is made from them has the same cause.
        self._devices: dict[int, tuple[torch.device, Tag]] = {}

    @property
    def findings(self) -> dict[tuple[Any, ...], Finding]:
        return self.results.findings

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        self.ops += 1
        name = getattr(func, '__name__', str(func))
        attribute = getattr(getattr(func, '__self__', None), '__name__', '') if name == '__get__' else ''
        if attribute:
            return self._property(attribute, func, args)
        if name == 'device':
            return self._written_out(func(*args, **kwargs))
        if name == 'get_device':
            device = self.tags[args[0]].device
            return -1 if device.type == 'cpu' else device.index or 0
        if name == 'type' and len(args) == 1 and not kwargs:
            return self._type_name(args[0])
        requested, args, kwargs = self._without_devices(name, args, kwargs)
        before = [tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)]
        tags = [self.tags[tensor] for tensor in before]
        tag = self.results.tag_of_result(name, args, before, tags, requested)
        result = self._call(name, func, args, kwargs, before, tags)
        return self._tagged(name, result, tag, before, tags)

    # Questions

    def _property(self, attribute: str, func: Callable[..., Any], args: Sequence[Any]) -> Any:
        tensor = args[0]
        tag = self.tags[tensor]
        if attribute == 'device':
            return self._remember(torch.device(str(tag.device)), tag)
        if attribute in ('is_cuda', 'is_cpu'):
            answer = tag.device.type == attribute[3:]
            self.record_branch(f'Tensor.{attribute}', answer)
            return answer
        result = func(*args)
        if isinstance(result, Tensor) and result is not tensor:
            self.tags[result] = tag
        return result

    def record_branch(self, question: str, answer: bool) -> None:
        place = self.tags.here()
        self.branches.setdefault((question, place), Branch(question, answer, place))

    def _type_name(self, tensor: Tensor) -> str:
        prefix = 'torch.' if self.tags[tensor].device.type == 'cpu' else f'torch.{self.target.type}.'
        return f'{prefix}{_TYPE_NAMES.get(tensor.dtype, "Float")}Tensor'

    # Devices among the arguments

    def _remember(self, device: torch.device, tag: Tag) -> torch.device:
        self._devices[id(device)] = (device, tag)
        return device

    def _written_out(self, device: torch.device) -> torch.device:
        tag = Tag(device) if device.type != 'cpu' else Tag(CPU, 'literal', "torch.device('cpu') written out", self.tags.here())
        return self._remember(device, tag)

    def _without_devices(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Tag | None, Any, Any]:
        """Return the requested device, and the arguments with ``cpu`` instead."""
        requested: list[Tag] = []

        def stripped(value: Any) -> Any:
            if isinstance(value, torch.device):
                requested.append(self._asked_tag(name, value))
                return CPU
            if isinstance(value, str) and value.split(':')[0] in ('cpu', 'cuda', self.target.type):
                requested.append(self._asked_tag(name, torch.device(value)))
                return 'cpu'
            return value

        args = tuple(tree_map(stripped, arg) for arg in args)
        kwargs = {key: tree_map(stripped, value) for key, value in kwargs.items()}
        if name == 'cuda':
            return Tag(self.target), args[:1], {}
        if name == 'cpu':
            return self._cpu_call('.cpu()'), args, kwargs
        if name == 'type' and len(args) > 1 and isinstance(args[1], str):
            moved = '.cuda.' in args[1]
            return (Tag(self.target) if moved else self._cpu_call(f'.type({args[1]!r})')), (args[0], args[1].replace('.cuda', '')), kwargs
        return (requested[0] if requested else None), args, kwargs

    def _asked_tag(self, name: str, device: torch.device) -> Tag:
        if id(device) in self._devices:
            return self._devices[id(device)][1]
        if device.type != 'cpu':
            return Tag(device if device.index is not None else self.target)
        kind = 'cpu call' if name in rules.MOVES else 'literal'
        return Tag(CPU, kind, f"{'.to' if name == 'to' else f'torch.{name}'} with the device 'cpu' written out", self.tags.here())

    def _cpu_call(self, what: str) -> Tag:
        return Tag(CPU, 'cpu call', what, self.tags.here())

    # The call itself

    def _call(self, name: str, func: Callable[..., Any], args: Any, kwargs: Any, tensors: Sequence[Tensor], known: Sequence[Tag]) -> Any:
        try:
            return func(*args, **kwargs)
        except RuntimeError:
            kinds = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
            if len(kinds) < 2 or not kinds & set(HALVES):
                raise
            self.results.report_dtypes(name, tensors, known)
            widest = torch.float64 if torch.float64 in kinds else torch.float32
            args, kwargs = tree_map(lambda value: value.to(widest) if isinstance(value, Tensor) and value.is_floating_point() else value,
                                    (tuple(args), kwargs))
            return func(*args, **kwargs)

    def _tagged(self, name: str, result: Any, tag: Tag, before: Sequence[Tensor], known: Sequence[Tag]) -> Any:
        if name == '__set__':
            self.tags[before[0]] = known[1] if len(known) > 1 else known[0]
            return result
        narrowed_at = next((known_tag.narrowed for known_tag in known if known_tag.narrowed), None)

        def note(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if any(value is tensor for tensor in before) and not rules.in_place(name):
                if self.tags[value].device == tag.device:
                    return value
                value = value.clone()
            place = narrowed_at
            if value.dtype in HALVES and place is None and not any(tensor.dtype in HALVES for tensor in before):
                place = self.tags.here()
            self.tags[value] = replace(tag, narrowed=place if value.dtype in HALVES else None)
            return value

        return tree_map(note, result)
