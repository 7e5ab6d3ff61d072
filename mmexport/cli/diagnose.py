"""Find the module and the line that make an export fail; the files of the trial are removed."""
from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

from . import options as opt


@opt.command('diagnose', ('mmexport diagnose CONFIG CKPT --backend onnx',), short_help='Find the module and line for which a format fails.')
@opt.argument('config')
@opt.argument('checkpoint')
@opt.shape
@opt.batch
@opt.device
@opt.cfg_options
@opt.backend
@opt.outputs
@opt.option('--work-dir', group=opt.OUTPUT, metavar='DIR', help='Gets failed/repro_<backend>.py (work_dirs/CONFIG).')
@opt.option('--json', group=opt.OUTPUT, metavar='FILE', help='Write the diagnoses there.')
@opt.trust_checkpoint
@opt.debug
def command(args: SimpleNamespace) -> int:
    """Find the smallest module of CONFIG that a format cannot hold, or computes wrongly. Exit code 0 nothing is wrong, 1 diagnosed."""
    return diagnose(args)


def diagnose(args: SimpleNamespace) -> int:
    """Print the diagnoses; return 0 where every format can be lowered and agrees with eager, else 1."""
    from ..compat import check_packages
    from ..model.build import CheckpointOptions
    from ..model.config import load_config
    from ..utils.line import Line
    from .export import work_dir_of
    from .overrides import overrides
    from .printing import print_lines
    check_packages()
    cfg = load_config(args.config, overrides(args))
    from ..export.exporter import Exporter
    home = work_dir_of(args)
    with TemporaryDirectory() as folder:
        exporter = Exporter(cfg, args.checkpoint, folder, device=args.device, quiet=False, samples=False,
                            options=CheckpointOptions(trust=args.trust_checkpoint))
        reports = exporter.run()
        repros = sorted(Path(folder).glob('failed/repro_*.py'))
        for repro in repros:
            (home / 'failed').mkdir(parents=True, exist_ok=True)
            shutil.copy(repro, home / 'failed' / repro.name)
    diagnoses = [row for report in reports for row in report.diagnoses]
    if args.json:
        Path(args.json).write_text(json.dumps([row.as_dict() for row in diagnoses], indent=1))
    reasons = [reason for report in reports for reason in report.reasons]
    lines = [line for row in diagnoses for line in row.lines()]
    print_lines(lines or [Line(reason, 'red') for reason in reasons] or [
        Line('nothing is wrong: it can be lowered, and the file agrees with eager on every input', 'green')])
    for repro in repros:
        print(f'for an issue: {home / "failed" / repro.name}')
    return 0 if all(report.passed for report in reports) else 1
