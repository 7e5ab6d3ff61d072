"""Run the checker from the command line; exit codes: 0 passed, 1 failed, 2 cannot be checked, 3 no such device or runtime."""
from __future__ import annotations

import json
import os
import sys
import textwrap
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .check import check, verdict
from .comparison import EAGER, Comparison
from .exit_codes import ENVIRONMENT, FAILED, PASSED, WRONG_INPUT
from .files import reason_of
from .kinds import add_kind
from .options import parse

# ANSI codes: green and red.
COLOURS = {True: 32, False: 31}


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    try:
        device = torch.device(args.device)
    except RuntimeError:
        print(f'--device {args.device}: expected cpu, cuda or cuda:N', file=sys.stderr)
        return WRONG_INPUT
    if args.runner and not args.runner.is_file():
        print(f'--runner {args.runner}: no such file', file=sys.stderr)
        return WRONG_INPUT
    if device.type == 'cuda' and not torch.cuda.is_available():
        print(f'{args.device} was asked for, and torch {torch.__version__} sees no CUDA device here', file=sys.stderr)
        return ENVIRONMENT
    for option in args.kind:
        name, _, file = option.partition('=')
        if not Path(file).is_file():
            print(f'--kind {option}: NAME=FILE was expected, and there is no file {file!r}', file=sys.stderr)
            return WRONG_INPUT
        add_kind(name, Path(file))
    try:
        result = check(args.folder, args.samples or args.folder / 'samples.npz', device, args.raw, args.trust,
                      args.runner)
    except ImportError as exc:
        print(f'{args.folder} cannot be checked: {exc.name or "a package"} is not installed here ({reason_of(exc)})', file=sys.stderr)
        return ENVIRONMENT
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, zipfile.BadZipFile) as exc:
        print(f'{args.folder} cannot be checked: {type(exc).__name__}: {reason_of(exc)}', file=sys.stderr)
        return WRONG_INPUT
    if args.out:
        try:
            args.out.write_text(json.dumps(result))
        except OSError as exc:
            print(f'--out {args.out} cannot be written: {exc.strerror}', file=sys.stderr)
            return WRONG_INPUT
    else:
        _print(table(result, args.verbose))
    return PASSED if verdict(result) is None else FAILED


def table(result: dict[str, Any], verbose: bool = False) -> list[tuple[str, bool | None]]:
    """Return the lines of the result in 80 columns: one if all passes, and rows that fail. `verbose` adds the other rows.

    With each line comes whether it says that something passed or failed; None where it says neither.
    """
    rows = [row for row in map(Comparison.from_dict, result['rows']) if row.stage == EAGER]
    shown = [row for row in rows if verbose or not row.passed]
    lines: list[tuple[str, bool | None]] = [(f"{'sample':<16}{'output':<13}{'max rel':>9}{'cosine':>10}  result", None)] if shown else []
    for row in shown:
        rel = '-' if row.max_rel is None else f'{row.max_rel:.1e}'
        cosine = '-' if row.cosine is None else f'{row.cosine:.6f}'
        text = f"{row.input_name:<16}{row.output:<13}{rel:>9}{cosine:>10}  {'pass' if row.passed else 'FAIL'}"
        lines.append((text, None if row.passed else False))
    lines += [(line, None) for line in textwrap.wrap(result['older'], 80)] if 'older' in result else []
    reason = verdict(result)
    differs = any(row.problem is None and not row.passed for row in rows)
    lines += [(line, None) for line in textwrap.wrap(result['chooses'], 80)] if differs and 'chooses' in result else []
    last = f"PASS on {result['device']}: {_summary(rows)}" if reason is None else f'FAIL: {reason}'
    return [*lines, (last, reason is None)]


def _print(lines: Sequence[tuple[str, bool | None]]) -> None:
    """Print, with colours on a terminal. A reader that stops early, as ``head`` does, changes no exit code."""
    coloured = sys.stdout.isatty() and not os.environ.get('NO_COLOR')
    try:
        print('\n'.join(line if passed is None or not coloured else f'\033[{COLOURS[passed]}m{line}\033[0m' for line, passed in lines),
              flush=True)
    except BrokenPipeError:
        # Python flushes once more where it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _summary(rows: Sequence[Comparison]) -> str:
    errors = [row.max_rel for row in rows if row.max_rel is not None]
    names = {row.output for row in rows}
    text = f"{len({row.sample for row in rows})} inputs, {'output' if len(names) == 1 else 'outputs'} {', '.join(sorted(names))}"
    return text + (f'; largest error {max(errors):.1e} of the scale' if errors else '')
