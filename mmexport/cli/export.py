"""Export a model and check the files."""
from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from . import options as opt

if TYPE_CHECKING:
    from mmengine.config import Config


EXAMPLES = ('mmexport export configs/mask2former_r50.py ckpt.pth --backend torchscript',
            'mmexport export CONFIG CKPT --backend all --image pictures/ --shape 512 1024',
            'mmexport export CONFIG CKPT --outputs final raw --cfg-options export.verify.batch=4')


@opt.command('export', EXAMPLES, short_help='Export a model and check the files.')
@opt.argument('config')
@opt.argument('checkpoint')
@opt.shape
@opt.batch
@opt.device
@opt.cfg_options
@opt.option('--ema', group=opt.MODEL, is_flag=True, help='Take the averaged weights.')
@opt.option('--allow-partial', group=opt.MODEL, is_flag=True, help='Load although weights are missing or of another shape.')
@opt.option('--fix', group=opt.MODEL, is_flag=True, help='Move tensors on the wrong device for the time of the export (mmexport audit).')
@opt.backend
@opt.outputs
@opt.work_dir
@opt.option('--no-samples', group=opt.OUTPUT, is_flag=True, help='Leave inputs and expected outputs out of the folder.')
@opt.option('--progressive', group=opt.OUTPUT, is_flag=True,
            help='The backbone, then backbone and neck, then all; keeps the largest part that is right.')
@opt.images
@opt.option('--accept-branch', group=opt.CHECK, several=True, metavar='FILE:LINE',
            help='Accept, at your own risk, a Python branch that no checked input turns; the manifest says so.')
@opt.option('--no-verify', group=opt.CHECK, is_flag=True, help='Only lower; the report then says "not run".')
@opt.option('--no-diagnose', group=opt.CHECK, is_flag=True, help='After a failure do not look for the smallest module that fails.')
@opt.trust_checkpoint
@opt.verbose
@opt.option('--quiet', group=opt.SHOW, is_flag=True, help='No progress and no table.')
@opt.debug
def command(args: SimpleNamespace) -> int:
    """Export the model of CONFIG with the weights of CHECKPOINT, and check each file. CONFIG is one of mmdet 3.x or mmseg 1.x, CHECKPOINT
    a .pth or .safetensors. The check runs in a fresh process, against the unpatched eager model."""
    return export(args)


def export(args: SimpleNamespace) -> int:
    """Export every format at every output level; return 0 verified (or not asked to), 1 not shown to be right."""
    from .outcome import exit_code
    from .printing import print_lines
    if args.progressive:
        return export_progressively(args)
    cfg, common = exporter_options(args)
    from ..export.exporter import Exporter
    reports = Exporter(cfg, args.checkpoint, work_dir_of(args), **common).run()
    for report in reports:
        if not args.quiet:
            print_lines(report.lines(args.verbose))
        elif report.passed is False:
            print('\n'.join(report.reasons), file=sys.stderr)
    return max(exit_code(report, args.no_verify) for report in reports)


def export_progressively(args: SimpleNamespace) -> int:
    """Export part after part; return 0 if no format of the whole model fails."""
    from ..errors import ConfigError
    from ..export.progressive import PartResults, steps
    from .printing import print_lines
    results = PartResults()
    cfg, common = exporter_options(args)
    if len(args.outputs) > 1:
        raise ConfigError('--progressive keeps one file a format: name one of --outputs final raw')
    for part, report in steps(results, cfg, args.checkpoint, work_dir_of(args), **common):
        if not args.quiet:
            print_lines([f'part: {part}', *report.lines(args.verbose)])
    print('\n'.join(results.lines()), file=sys.stderr if args.quiet else sys.stdout)
    return 0 if results.passed else 1


def exporter_options(args: SimpleNamespace) -> tuple[Config, dict[str, Any]]:
    """Return the config, and the arguments of every Exporter of this command."""
    from ..compat import check_packages
    from ..model.config import load_config
    from .overrides import overrides
    check_packages()
    cfg = load_config(args.config, overrides(args))
    from ..model.build import CheckpointOptions
    options = CheckpointOptions(args.ema, args.trust_checkpoint, args.allow_partial)
    return cfg, dict(device=args.device, options=options, checking=not args.no_verify, samples=not args.no_samples, quiet=args.quiet,
                     fix=args.fix, diagnose=not args.no_diagnose)


def work_dir_of(args: SimpleNamespace) -> Path:
    """Return ``--work-dir``; ``work_dirs/CONFIG`` without one."""
    from ..export.staging import default_work_dir
    return Path(args.work_dir or default_work_dir(args.config))
