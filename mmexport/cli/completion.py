"""Complete paths, formats and devices in a shell, without importing torch."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

BACKENDS = Path(__file__).parents[1] / 'backends'
# What the shell itself completes, by the word that the help shows.
PLACES = {'FILE': 'file', '[OUT.pt]': 'file', 'ZOO.json': 'file', 'DIR': 'dir'}
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completer(metavar: str | None) -> Completer | None:
    """Return the completion of an option's value by the word that its help shows; None leaves it to click."""
    kind = PLACES.get(metavar or '')
    return None if kind is None else lambda ctx, param, incomplete: [CompletionItem(incomplete, type=kind)]


def formats(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the formats of this package whose name begins so; those that a config registers are not known before it is read."""
    return _beginning([*(file.parent.name for file in BACKENDS.glob('*/backend.py')), 'all'], incomplete)


def devices(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of devices that begin so."""
    return _beginning(('cpu', 'cuda'), incomplete)


def packages(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the packages with a model zoo that begin so."""
    return _beginning(('mmdet', 'mmseg'), incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
