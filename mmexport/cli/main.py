"""Dispatch ``mmexport COMMAND``."""
from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from ..errors import INTERRUPTED, suggestion

# Commands by name; what `--help` does not list is for scripts of older versions.
COMMANDS = {'export': 'export', 'verify': 'verify', 'audit': 'audit', 'diagnose': 'diagnose', 'checkpoint': 'checkpoint',
            'sweep': 'sweep', 'doctor': 'doctor', 'pytorch2libtorch': 'libtorch'}
HIDDEN = ('pytorch2libtorch',)


class Commands(click.Group):
    """Import a command's module when it is asked for. A name that does not exist gets a suggestion."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if name not in HIDDEN]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f'.{COMMANDS[cmd_name]}', __package__).command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith('-'):
            ctx.fail(f'there is no command {args[0]!r}{suggestion(args[0], COMMANDS)}; there are {", ".join(self.list_commands(ctx))}')
        return super().resolve_command(ctx, args)


def _version(ctx: click.Context, _: click.Parameter, requested: bool) -> None:
    if requested:
        from .. import __version__
        click.echo(__version__)
        ctx.exit()


@click.group(cls=Commands, context_settings=dict(help_option_names=['-h', '--help'], max_content_width=100),
             epilog='Exit codes: 0 verified, 1 not shown to be right, 2 wrong input, 3 environment, 130 interrupted. '
                    'Completion: eval "$(_MMEXPORT_COMPLETE=bash_source mmexport)", or zsh_source, fish_source.')
@click.option('--version', is_flag=True, callback=_version, expose_value=False, is_eager=True, help='Show the version.')
def commands() -> None:
    """Export OpenMMLab 2.x models, and check the files against the unpatched model."""


def run(argv: Sequence[str], prog: str = 'mmexport') -> int:
    """Run a command; return its exit code."""
    try:
        code = commands.main(list(argv), prog, standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except click.Abort:
        return INTERRUPTED
    return int(code or 0)


def main(*command: str) -> None:
    """Run ``mmexport``, or one command of it, with the arguments of this process, and exit."""
    sys.exit(run([*command, *sys.argv[1:]]))
