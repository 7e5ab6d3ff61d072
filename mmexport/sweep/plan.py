"""Choose configs of a package: the smallest model of each folder, and each backbone that no other folder has."""
from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..errors import ConfigError, MMExportError, SetupError, suggestion
from ..model.config import PACKAGES

OUTPUTS = ('final', 'raw')


@dataclass(frozen=True)
class Job:
    """Describe one config in all formats: ``tools/export.py CONFIG CHECKPOINT --outputs final raw --backend ...``.

    Attributes:
        shape: of the traced input, (H, W), as ``--shape`` gives it; None is the default command's own.
        images: the user's pictures, as ``--images`` gives them.
    """

    config: str
    backends: tuple[str, ...]
    shape: tuple[int, int] | None = None
    images: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the config's name as a file name."""
        return self.config.replace('::', '_').replace('/', '_').removesuffix('.py')

    def row(self, backend: str, **content: Any) -> dict[str, Any]:
        """Return the row of one of the formats, with what it is kept under."""
        shape = list(self.shape) if self.shape else None
        return dict(config=self.config, backend=backend, shape=shape, images=list(self.images), **content)

    def rows(self, **content: Any) -> list[dict[str, Any]]:
        """Return the same row for all formats."""
        return [self.row(backend, **content) for backend in self.backends]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Job:
        shape = content['shape']
        return cls(content['config'], tuple(content['backends']), tuple(shape) if shape else None, tuple(content['images']))


def jobs(packages: Sequence[str], backends: Sequence[str], shape: tuple[int, int] | None = None, match: str | None = None,
         images: Sequence[str] = ()) -> list[Job]:
    """Return a job for each chosen config."""
    chosen = [name for package in packages for name in configs(package, match)]
    if not chosen:
        raise ConfigError(f'--match {match}: no config of {", ".join(packages)} has that in its name')
    return [Job(name, tuple(backends), shape, tuple(images)) for name in chosen]


def configs(package: str, match: str | None = None) -> list[str]:
    """Return ``package::folder/file.py`` of the chosen configs of `package`; with `match`, all whose name has it."""
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
    """Return the folder of an installed OpenMMLab package's configs."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        if package not in PACKAGES:
            raise ConfigError(f'--packages {package}{suggestion(package, PACKAGES)}: there are {", ".join(PACKAGES)}')
        raise SetupError(f'{package} is not installed: {PACKAGES[package]}')
    return Path(spec.origin).parent / '.mim' / 'configs'


class _Ramps(TorchFunctionMode):
    """Let ``linspace`` return values while a model is built of shapes alone: rates of stochastic depth are read from it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **{**(kwargs or {}), **(dict(device='cpu') if func is torch.linspace else {})})


def _by_size(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield backbone and config, fewest parameters first, one for each backbone setup; unreadable configs come last."""
    smallest: dict[str, tuple[str, Path]] = {}
    for path in sorted(folder.glob('*.py'), key=lambda path: (len(path.name), path.name)):
        kind, setting = _backbone(path)
        smallest.setdefault(setting, (kind, path))
    yield from sorted(smallest.values(), key=lambda entry: _parameters(entry[1])) if len(smallest) > 1 else smallest.values()


def _backbone(path: Path) -> tuple[str, str]:
    from ..model.config import load_config
    try:
        backbone = load_config(path).model.get('backbone') or {}
    except MMExportError:
        return '(not readable here)', ''
    return str(backbone.get('type')), repr(backbone)


def _parameters(path: Path) -> float:
    """Return the number of parameters, without allocating them; infinity if the model cannot be built here."""
    from ..model.build import build_model, reading_no_weights
    from ..model.config import load_config
    try:
        with torch.device('meta'), _Ramps(), reading_no_weights():
            return sum(parameter.numel() for parameter in build_model(load_config(path)).parameters())
    except (MMExportError, RuntimeError, NotImplementedError, TypeError, ValueError, KeyError, AttributeError, AssertionError):
        return float('inf')
