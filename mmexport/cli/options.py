"""Define commands whose options may take several values and are listed in groups."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from types import SimpleNamespace
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from .completion import completer, devices, formats

MODEL, OUTPUT, CHECK, SAFETY, SHOW = 'Model', 'Output', 'Verification', 'Trust', 'Messages'
LAST = 'mmexport.last_option'
F = TypeVar('F', bound=Callable[..., Any])


class Choice(click.Choice):  # type: ignore[type-arg]
    """Take one of some words; a misspelt one gets a suggestion."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..errors import suggestion
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as exc:
            words = exc.message.rstrip('.') + suggestion(str(value), list(map(str, self.choices)))
            raise click.BadParameter(words, ctx, param) from exc


class Option(click.Option):
    """Define an option with the heading that ``--help`` lists it under.

    Args:
        group: the heading.
        several: take all values up to the next option (``--backend onnx openvino``); the parameter is a tuple.
    """

    def __init__(self, *args: Any, group: str = SHOW, several: bool = False, **kwargs: Any) -> None:
        if several:
            kwargs.update(multiple=True)
        kwargs.setdefault('shell_complete', completer(kwargs.get('metavar')))
        super().__init__(*args, **kwargs)
        self.group, self.several = group, several


class Command(click.Command):
    """Define a command with examples in its help. Its options may take several values."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several = {name: option for option in self.params if isinstance(option, Option) and option.several for name in option.opts}
        # For completion: the option whose values the command line ends with.
        ctx.meta[LAST] = next((several.get(arg) for arg in reversed(args) if arg.startswith('-')), None)
        return super().parse_args(ctx, repeat_names(args, set(several)))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        option = ctx.meta.get(LAST)
        if option is not None and not incomplete.startswith('-'):
            items: list[CompletionItem] = option.shell_complete(ctx, incomplete)
            return items
        return super().shell_complete(ctx, incomplete)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                name, words = record
                name = f'{name}...' if getattr(param, 'several', False) else name
                groups.setdefault(getattr(param, 'group', SHOW), []).append((name, words))
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section('Examples'):
                for example in self.examples:
                    formatter.write(f'{"":{formatter.current_indent}}{example}\n')


def repeat_names(args: Sequence[str], several: set[str]) -> list[str]:
    """Repeat the name of an option before each of its values: ``--backend a b`` becomes ``--backend a --backend b``.

    Args:
        several: names of the options that take several values.
    """
    repeated: list[str] = []
    name: str | None = None
    first = False
    for number, arg in enumerate(args):
        if arg == '--':
            return [*repeated, *args[number:]]
        if arg.startswith('-') and len(arg) > 1 and not arg[1].isdigit():
            option, equals, _ = arg.partition('=')
            name, first = (option if option in several else None), not equals
        elif name and not first:
            repeated.append(name)
        else:
            first = False
        repeated.append(arg)
    return repeated


def option(*names: str, group: str, several: bool = False, **kwargs: Any) -> Callable[[F], F]:
    """Return a decorator that adds an option of `group`."""
    return click.option(*names, cls=Option, group=group, several=several, **kwargs)


def argument(name: str, **kwargs: Any) -> Callable[[F], F]:
    """Return a decorator that adds a positional argument, a path that the shell completes."""
    return click.argument(name, shell_complete=completer('FILE'), **kwargs)


def command(name: str, examples: Sequence[str] = (), **kwargs: Any) -> Callable[[Callable[[SimpleNamespace], int]], Command]:
    """Return a decorator that makes a function of the parsed options a command; its docstring is the help.

    An error becomes one line and its exit code, see `outcome.guarded`.
    """
    def decorate(run: Callable[[SimpleNamespace], int]) -> Command:
        @wraps(run)
        def guarded_run(**params: Any) -> int:
            from .outcome import guarded
            args = SimpleNamespace(**params)
            return guarded(lambda: run(args), getattr(args, 'debug', False))
        return click.command(name, cls=Command, examples=examples, context_settings=dict(max_content_width=100), **kwargs)(guarded_run)
    return decorate


cfg_options = option('--cfg-options', group=MODEL, several=True, metavar='K=V', help='Override config values.')
trust_checkpoint = option('--trust-checkpoint', group=SAFETY, is_flag=True,
                          help='Read a pickle with classes of its own; it can run code.')
debug = option('--debug', group=SHOW, is_flag=True, help='Show the trace behind an error.')
shape = option('--shape', group=MODEL, nargs=2, type=int, metavar='H W', help='Size of the traced input.')
batch = option('--batch', group=MODEL, type=int, help='Batch of the traced input (1).')
backend = option('--backend', group=OUTPUT, several=True, metavar='NAME', shell_complete=formats,
                 help="Formats, or 'all' that are installed; replaces the config's export.backends (torchscript).")
outputs = option('--outputs', group=OUTPUT, several=True, type=Choice(('final', 'raw')), metavar='final|raw',
                 help="Decisions at input size (the default), or the network's own outputs; export takes both, a folder each.")
device = option('--device', group=MODEL, default='cpu', shell_complete=devices, help='cpu, cuda or cuda:N.')
images = option('--image', '--images', 'image', group=CHECK, several=True, metavar='FILE',
                help='Pictures of what the model was trained on, or folders of them: each is an input, and goes through test_step.')
work_dir = option('--work-dir', group=OUTPUT, metavar='DIR', help='Where results go (work_dirs/CONFIG).')
verbose = option('--verbose', group=SHOW, is_flag=True, help='Show all rows, not only those that fail.')
