"""Run ``tools/diagnose.py``: an export whose result is the diagnosis; its files are removed."""
from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from ..compat import check_packages
from ..errors import LoweringError, first_line
from ..model.build import CheckpointOptions
from ..model.config import load_config
from .export import overrides, work_dir_of


def diagnose(args: argparse.Namespace) -> int:
    """Diagnose; exit code 0 every format can be lowered and agrees with eager, 1 diagnosed."""
    check_packages()
    args.image = None
    cfg = load_config(args.config, overrides(args))
    from ..export.exporter import Exporter
    home = work_dir_of(args)
    with TemporaryDirectory() as folder:
        exporter = Exporter(cfg, args.checkpoint, folder, device=args.device, quiet=False, samples=False,
                            options=CheckpointOptions(trust=args.trust_checkpoint))
        try:
            report = exporter.run()
            passed, reasons = bool(report.passed), report.reasons
        except LoweringError as exc:
            passed, reasons = False, [first_line(exc)]
        repros = sorted(Path(folder).glob('failed/repro_*.py'))
        for repro in repros:
            (home / 'failed').mkdir(parents=True, exist_ok=True)
            shutil.copy(repro, home / 'failed' / repro.name)
    found = exporter.consultation
    if args.json:
        Path(args.json).write_text(json.dumps([row.as_dict() for row in found.found], indent=1))
    print('\n'.join(found.lines() or reasons or ['nothing is wrong: it can be lowered, and the file agrees with eager on every input']))
    for repro in repros:
        print(f'for an issue: {home / "failed" / repro.name}')
    return 0 if passed else 1
