"""Define a patch, its environment, and the report row of an applied one."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True)
class Environment:
    """Describe the machine to a patch, which decides whether it applies."""

    device: str = 'cpu'
    versions: dict[str, Any] = field(default_factory=dict)

    @property
    def compiled_ops(self) -> bool:
        return self.versions.get('mmcv_ops') == 'compiled'


class Patch:
    """Replace `targets`, dotted names that are looked up when the patch is applied. This file therefore imports without mmdet or mmseg.

    `upstream` names the versions on which the replacement was compared with the original: ``'torch 2.4.1 2.13.0, mmdet 3.3.0'``.
    """

    targets: ClassVar[tuple[str, ...]]
    upstream: ClassVar[str]

    def check(self, env: Environment) -> str | None:
        """Return why the patch does not apply here, or None."""
        return None

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function to use instead of `original`. It has the same signature, with ``self`` or ``cls`` if that has one."""
        raise NotImplementedError


@dataclass(frozen=True)
class Applied:
    """Hold a report row: `skipped` is the reason, or None if the patch was applied."""

    name: str
    why: str
    upstream: str
    targets: tuple[str, ...]
    skipped: str | None = None
    # How often the model called a replacement: a patch that is on and never called did nothing to this model.
    calls: Counter[str] = field(default_factory=Counter, compare=False)

    @property
    def acted(self) -> bool:
        return self.calls.total() > 0

    def untried(self, versions: Mapping[str, Any]) -> str | None:
        """Return which installed version the patch was not compared with, in words; None if it was."""
        installed = {name.replace('mmcv-lite', 'mmcv'): str(value).partition('+')[0] for name, value in versions.items()}
        differing = [f'{package} {installed[package]}' for package, *compared in (part.split() for part in self.upstream.split(','))
                 if self.skipped is None and package in installed and installed[package] not in compared]
        return f'{self.name} was checked on {self.upstream}, here is {", ".join(differing)}' if differing else None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), 'calls': self.calls.total()}
