"""Share code among the scripts in tools/: config overrides, one-line errors, exit codes."""
from __future__ import annotations

import argparse
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, MMExportError, last_line

if TYPE_CHECKING:
    from mmengine.config import Config

    from ..export.exporter import Exporter
    from ..report.facts import Report


def guarded(work: Callable[[], int], debug: bool = False) -> int:
    """Run `work`; turn an error into one line and its exit code (1 parity, 2 wrong input, 3 environment)."""
    _quiet_upstream()
    try:
        return work()
    except KeyboardInterrupt:
        print('interrupted; earlier results are as they were', file=sys.stderr)
        return 130
    except Exception as exc:  # The last door: a user gets words, and the trace on request.
        if debug:
            traceback.print_exc()
        words, code = _in_words(exc)
        print(words, file=sys.stderr)
        return code


def _in_words(exc: Exception) -> tuple[str, int]:
    """Return the message of an error, and its exit code."""
    if isinstance(exc, MMExportError):
        return f'{type(exc).__name__}: {exc}', exc.exit_code
    if isinstance(exc, OSError):
        return f'{type(exc).__name__}: {exc}', 2
    if isinstance(exc, ImportError):
        return f'SetupError: {exc}; what mmexport needs is in setup.py: pip install -e .', 3
    return f'unexpected {type(exc).__name__}: {last_line(exc)} (--debug shows where)', 1


def export(args: argparse.Namespace) -> int:
    """Run ``tools/export.py``: exit code 0 verified (or not asked to), 1 not shown to be right."""
    if args.progressive:
        return export_progressively(args)
    codes = []
    for exporter in exporters(args):
        report = exporter.run()
        if not args.quiet:
            print('\n'.join(report.lines(getattr(args, 'verbose', False))))
        elif report.passed is False:
            print('\n'.join(report.reasons), file=sys.stderr)
        codes.append(exit_code(report, args.no_verify))
    return max(codes)


def export_progressively(args: argparse.Namespace) -> int:
    """Run ``--progressive``; return 0 if the whole model passes in every format."""
    from ..export.progressive import Standing, steps
    standing = Standing()
    cfg, common = _common(args)
    if args.outputs and len(args.outputs) > 1:
        raise ConfigError('--progressive keeps one file a format: name one of --outputs final raw')
    for part, found in steps(standing, cfg, args.checkpoint, work_dir_of(args), **common):
        if not args.quiet:
            print(f'part: {part}', *([str(found)] if isinstance(found, Exception) else found.lines()), sep='\n')
    print('\n'.join(standing.lines()), file=sys.stderr if args.quiet else sys.stdout)
    return 0 if standing.passed else 1


def _common(args: argparse.Namespace) -> tuple[Config, dict[str, Any]]:
    """Return the config, and the arguments of every Exporter of this command."""
    from ..compat import check_packages
    from ..model.config import load_config
    check_packages()
    cfg = load_config(args.config, overrides(args))
    from ..model.build import CheckpointOptions
    options = CheckpointOptions(args.ema, args.trust_checkpoint, args.allow_partial)
    return cfg, dict(device=args.device, options=options, checking=not args.no_verify, samples=not args.no_samples, quiet=args.quiet,
                     fix=args.fix, diagnose=not args.no_diagnose)


def exporters(args: argparse.Namespace) -> Iterator[Exporter]:
    """Yield an Exporter for each of ``--outputs``, over one model and one set of eager runs."""
    cfg, common = _common(args)
    from ..export.exporter import Exporter
    from ..verification.memory import Memory
    work_dir = work_dir_of(args)
    if not args.outputs or len(args.outputs) == 1:
        yield Exporter(cfg, args.checkpoint, work_dir, **common)
        return
    common['memory'] = Memory()
    for outputs in dict.fromkeys(args.outputs):
        cfg.merge_from_dict({'export.outputs': outputs})
        exporter = Exporter(cfg, args.checkpoint, work_dir / outputs, **common)
        yield exporter
        common.update(model=exporter.model, fit=exporter.fit)


def work_dir_of(args: argparse.Namespace) -> Path:
    return Path(args.work_dir or Path('work_dirs') / Path(args.config).stem)


def exit_code(report: Report, unverified_is_fine: bool) -> int:
    if report.passed is None:
        return 0 if unverified_is_fine else 1
    return 0 if report.passed else 1


def overrides(args: argparse.Namespace) -> dict[str, Any]:
    """Return command-line options as config overrides; ``--cfg-options`` has precedence, except over two ``--outputs``."""
    from ..backends import named_backends
    found: dict[str, Any] = {}
    if args.backend:
        found['export.backends'] = named_backends(args.backend)
    if args.shape:
        found['export.inputs.shape'] = list(args.shape)
    if args.batch is not None:
        found['export.inputs.batch'] = args.batch
    if args.image:
        found['export.inputs.image'] = list(args.image)
    if getattr(args, 'accept_branch', None):
        found['export.verify.accept_branches'] = list(args.accept_branch)
    if args.outputs:
        found['export.outputs'] = args.outputs[0]
    return {**found, **parse_options(args.cfg_options)}


def parse_options(options: Sequence[str]) -> dict[str, Any]:
    """Parse ``k=v`` options, the value as mmengine's DictAction reads it."""
    from mmengine.config import DictAction
    parsed: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition('=')
        if not equals:
            raise ConfigError(f'--cfg-options {option}: KEY=VALUE was expected')
        parsed[key] = DictAction._parse_iterable(value)
    return parsed


def _quiet_upstream() -> None:
    """Hide deprecation notices of torch and OpenMMLab, which users of mmexport cannot act on."""
    warnings.filterwarnings('ignore')
    logging.disable(logging.WARNING)


def make_checkpoint(args: argparse.Namespace) -> int:
    """Run ``tools/make_checkpoint.py``."""
    from ..model.config import load_config
    from ..seeding.checkpoint import write_checkpoint
    from ..utils.progress import Progress
    cfg = load_config(args.config, parse_options(args.cfg_options))
    with Progress()('Seeding and calibrating the weights'):
        write_checkpoint(cfg, args.out, args.seed)
    print(f'{args.out}: seeded weights (seed {args.seed}) for {Path(args.config).name}, for demos and tests only')
    return 0
