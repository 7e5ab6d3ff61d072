"""Which configs of a package stand for it: of each folder the smallest model, and every kind of backbone that no other folder shows."""
from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..errors import ConfigError, MMExportError, SetupError

# What no job was traced at.
OTHERS = ((320, 384), (256, 320))


@dataclass(frozen=True)
class Job:
    """One config in one format: traced at `size`, checked at `other` and at batch 2."""

    config: str
    backend: str
    size: tuple[int, int] = (256, 256)
    other: tuple[int, int] = OTHERS[0]

    @property
    def name(self) -> str:
        """The config's, as the name of a file."""
        return self.config.replace('::', '_').replace('/', '_').removesuffix('.py')

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def jobs(packages: Sequence[str], backends: Sequence[str], size: tuple[int, int], match: str | None = None) -> list[Job]:
    """A job for each chosen config and format, format by format, so that what is cut off has whole formats in it."""
    found = [name for package in packages for name in configs(package, match)]
    if not found:
        raise ConfigError(f'--match {match}: no config of {", ".join(packages)} has that in its name')
    other = next(other for other in OTHERS if other != tuple(size))
    return [Job(name, backend, size, other) for backend in backends for name in found]


def configs(package: str, match: str | None = None) -> list[str]:
    """``package::folder/file.py`` of those that stand for `package`; with `match`, every config whose name has it."""
    root = config_root(package)
    if match:
        return [f'{package}::{path.relative_to(root)}' for path in sorted(root.glob('*/*.py'))
                if path.parent.name != '_base_' and re.search(match, str(path.relative_to(root)))]
    chosen: list[Path] = []
    kinds: set[str] = set()
    others: list[tuple[str, Path]] = []
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and path.name != '_base_'):
        smallest = list(_by_size(folder))
        if smallest:
            chosen.append(smallest[0][1])
            kinds.add(smallest[0][0])
            others += smallest[1:]
    for kind, path in others:
        if kind not in kinds:
            kinds.add(kind)
            chosen.append(path)
    return [f'{package}::{path.relative_to(root)}' for path in sorted(chosen)]


def path_of(name: str) -> Path:
    package, _, relative = name.partition('::')
    return config_root(package) / relative


def config_root(package: str) -> Path:
    """Where an installed package of OpenMMLab keeps its configs."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise SetupError(f'{package} is not installed: pip install "mmexport[{package.removeprefix("mm")}]"')
    return Path(spec.origin).parent / '.mim' / 'configs'


class _Ramps(TorchFunctionMode):
    """Real numbers for ``linspace`` while a model is built of shapes alone: rates of stochastic depth are read from one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **{**(kwargs or {}), **(dict(device='cpu') if func is torch.linspace else {})})


def _by_size(folder: Path) -> Iterator[tuple[str, Path]]:
    """Kind of backbone and config, fewest parameters first, one for each backbone as it is set up; what cannot be read comes last."""
    seen: dict[str, tuple[str, Path]] = {}
    for path in sorted(folder.glob('*.py'), key=lambda path: (len(path.name), path.name)):
        kind, setting = _backbone(path)
        seen.setdefault(setting, (kind, path))
    yield from sorted(seen.values(), key=lambda found: _parameters(found[1])) if len(seen) > 1 else seen.values()


def _backbone(path: Path) -> tuple[str, str]:
    from ..config import load_config
    try:
        backbone = load_config(path).model.get('backbone') or {}
    except MMExportError:
        return '(not readable here)', ''
    return str(backbone.get('type')), repr(backbone)


def _parameters(path: Path) -> float:
    """How many, from a build that allocates nothing; infinitely many where it cannot be built here."""
    from ..config import load_config
    from ..model import build_model
    try:
        with torch.device('meta'), _Ramps():
            return sum(parameter.numel() for parameter in build_model(load_config(path)).parameters())
    except (MMExportError, RuntimeError, NotImplementedError, TypeError, ValueError, KeyError, AttributeError, AssertionError):
        return float('inf')
