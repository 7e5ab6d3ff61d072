"""Hold the findings of an audit, and render them as text or JSON. They are in the order in which they would fail."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REMEDIES = {
    'attribute': 'register it: self.register_buffer(name, tensor, persistent=False); then .to() moves it',
    'container': 'tensors in lists, dicts and objects stay behind on .to(): register each as a buffer (persistent=False)',
    'global': "a tensor outside the module stays behind on .to(): make it a buffer, or use tensor.to(x.device) where it is used",
    'parameter': 'a module in a plain list or dict is invisible to .to(): use nn.ModuleList or nn.ModuleDict',
    'left behind': "let the module's _apply move it: def _apply(self, fn, ...) must call super()._apply(fn, ...)",
    'factory': 'name the device: device=x.device, or x.new_zeros(...) and the like',
    'literal': "replace the device that is written out by the input's: device=x.device",
    'cpu call': 'leave out .cpu() / .to("cpu"), or bring the result back: .to(x.device)',
    'numpy': 'stay in torch; what must go through numpy comes back with .to(x.device), and is a constant in a traced file',
    'constructor': 'torch.Tensor(...), torch.FloatTensor(...) and the like always lie on the CPU: torch.tensor(..., device=x.device)',
    'dtype': 'cast where the types meet: a.to(b.dtype), or leave the half cast out',
    'placement': 'move the whole model: model.to(device)',
}


@dataclass(frozen=True)
class Place:
    """Hold a line of code, and the module (``decode_head.transformer.layers.3``) that ran it."""

    file: str = ''
    line: int = 0
    module: str = ''

    def __str__(self) -> str:
        return f'{self.file}:{self.line}' if self.file else '(unknown)'

    @property
    def short(self) -> str:
        """Return the last three parts of the path."""
        return f'{"/".join(Path(self.file).parts[-3:])}:{self.line}' if self.file else '(unknown)'


@dataclass(frozen=True)
class Finding:
    """Hold one cause, and the first operator at which it would fail.

    Attributes:
        kind: a key of `REMEDIES`.
        what: the cause in words, e.g. ``torch.arange without a device``.
        origin: where the tensor came to be there.
        op: the operator that raises, and `meets` the line where it stands.
        times: how often the cause met the rest in this run.
        holder: the module that holds the tensor unregistered, and where in it.
    """

    kind: str
    what: str
    origin: Place
    op: str
    meets: Place
    times: int = 1
    holder: tuple[str, str] | None = None

    @property
    def remedy(self) -> str:
        return REMEDIES[self.kind]

    @property
    def module(self) -> str:
        return self.origin.module or self.meets.module

    def as_dict(self) -> dict[str, Any]:
        facts = {name: value for name, value in asdict(self).items() if name != 'holder'}
        return {**facts, 'module': self.module, 'remedy': self.remedy}


@dataclass(frozen=True)
class Branch:
    """Hold a question about the device in the code, and its answer. The answer may differ on another machine."""

    question: str
    answer: bool
    place: Place


@dataclass(frozen=True)
class Audit:
    """Hold the findings of one run, as if on `device`; `ops` operators were recorded."""

    device: str
    findings: tuple[Finding, ...]
    branches: tuple[Branch, ...] = ()
    ops: int = 0
    seconds: float = 0.0
    fixed: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return not self.findings

    @property
    def verdict(self) -> str:
        return 'clean' if self.clean else f'{_count(self.findings, "finding")} (mmexport audit shows them)'

    def as_dict(self) -> dict[str, Any]:
        return dict(device=self.device, clean=self.clean, ops=self.ops, seconds=self.seconds, fixed=list(self.fixed),
                    findings=[finding.as_dict() for finding in self.findings],
                    branches=[asdict(branch) for branch in self.branches])

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table, plain text."""
        yield f'as if on {self.device}: {self.ops} operators watched, {_count(self.findings, "finding")}'
        for number, finding in enumerate(self.findings, 1):
            yield f'{number}. {finding.kind}: {finding.what}'
            if finding.module:
                yield f'   module {finding.module}'
            yield f'   {finding.origin}'
            if finding.op:
                at = f' at {finding.meets}' if finding.meets.file else ''
                yield f'   fails in {finding.op}{at}' + (f', {finding.times} times' if finding.times > 1 else '')
            yield f'   remedy: {finding.remedy}'
        for branch in self.branches:
            yield f'asked: {branch.question} -> {branch.answer}, at {branch.place}'
        yield from (f'fixed: {line}' for line in self.fixed)


def _count(things: Sequence[Any], noun: str) -> str:
    return f'{len(things)} {noun}' + ('' if len(things) == 1 else 's')
