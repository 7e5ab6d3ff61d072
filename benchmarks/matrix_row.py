"""Export and verify one model in every format that this environment has, and print the result of each as a line of JSON.

    python benchmarks/matrix_row.py segformer_b0
"""
from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import CONFIGS, ROOT, quiet
from matrix_table import FORMATS

# Compiles for minutes: a row of its own for each model but this one.
COMPILED = {'aotinductor': ('segformer_b0',)}
WHOLE = ('torchscript', 'onnx')
# Detectors that are tried in the formats of WHOLE.
DETECTORS = ('retinanet', 'rtmdet', 'mask_rcnn', 'yolox', 'detr', 'dino')
# Models whose files other environments load.
FILES = ('segformer_b0', 'maskformer_r50')


def main() -> int:
    quiet()
    row = sys.argv[1]
    print(json.dumps(loaded(Path(sys.argv[2]), sys.argv[3]) if row == 'files' else results(row)))
    return 0


def loaded(folder: Path, name: str) -> dict[str, str]:
    """Write the files of this environment into `folder`, and verify those of every environment that are there."""
    from mmexport import Exporter
    from mmexport.backends.building import availability
    from tests.tiny import seeded, tiny
    own = folder / name
    if not own.is_dir():
        formats = [kind for kind in FORMATS if availability()[kind] is None and kind not in COMPILED]
        for model in FILES:
            Exporter(tiny(model, backends=formats), None, own / model, model=seeded(model), diagnose=False).run()
    outcomes = {}
    for file in sorted(folder.glob('*/*/*/manifest.json')):
        writer, model, kind = file.parts[-4:-1]
        command = [sys.executable, '-W', 'ignore', '-m', 'mmexport', 'verify', str(file.parent), '--trust']
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        words = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        outcomes[f'{writer} {model} {kind}'] = 'PASS' if done.returncode == 0 else f'exit {done.returncode}: {" ".join(words[-2:])[:300]}'
    return outcomes


def results(row: str) -> dict[str, str]:
    """Return ``PASS``, or the reason, by format."""
    from mmexport import Exporter
    from mmexport.backends.building import availability
    from mmexport.errors import MMExportError, last_line
    row, compiled = row.removesuffix(' aotinductor'), row.endswith(' aotinductor')
    formats = ['aotinductor'] if compiled else [
        name for name in FORMATS if (not row.endswith('256x256') and not row.startswith('detector ') or name in WHOLE)
        and row in COMPILED.get(name, (row,))]
    missing = {name: f'not available: {reason}' for name, reason in availability().items() if reason and name in formats}
    present = [name for name in formats if name not in missing]
    with tempfile.TemporaryDirectory() as folder:
        cfg, model, checkpoint = made(row, present, Path(folder))
        try:
            report, = Exporter(cfg, checkpoint, f'{folder}/work', model=model, diagnose=False).run()
        except MMExportError as exc:
            return {**missing, **dict.fromkeys(present, f'{type(exc).__name__}: {last_line(exc)}')}
        return {**missing, **{name: judged(report, name) for name in present}}


def made(row: str, formats: list[str], folder: Path) -> tuple[Any, Any, str | None]:
    """Return config, model and checkpoint of a row; a checkpoint that is written goes into `folder`."""
    from mmexport.model.config import load_config
    from tests.tiny import seeded, tiny
    if row.startswith('trained '):
        place = ROOT / 'tests' / 'data' / 'trained' / row.split()[1]
        cfg = load_config(place.with_suffix('.py'))
        cfg.export = {**cfg.get('export', {}), 'backends': formats}
        return cfg, None, str(place.with_suffix('.pth'))
    if row.startswith('detector '):
        from tests.detectors import seeded_detector, tiny_detector
        return tiny_detector(row.split()[1], backends=formats), seeded_detector(row.split()[1]), None
    if row.endswith('256x256'):
        from mmexport.seeding.checkpoint import write_checkpoint
        cfg = load_config(CONFIGS / f'{row.split()[0]}.py')
        cfg.export = {**cfg.get('export', {}), 'backends': formats, 'inputs': dict(shape=(256, 256))}
        file = folder / 'weights.pth'
        write_checkpoint(cfg, file)
        return cfg, None, str(file)
    return tiny(row, backends=formats), seeded(row), None


def judged(report: Any, name: str) -> str:
    """Return ``PASS`` with the exporter's way, or the first reason of a format."""
    if report.passed_in(name):
        artifact = next(one for one in report.artifacts if one.backend == name)
        traced = artifact.manifest.get(name, {}).get('exporter')
        return f'PASS ({traced})' if traced else 'PASS'
    # What `test_step` or the device audit found has no format's name before it.
    reasons = [reason for reason in report.reasons if reason.startswith(f'{name}:')] or list(report.reasons) or ['no reason']
    return f'FAIL: {reasons[0].removeprefix(f"{name}: ")}'[:400]


if __name__ == '__main__':
    sys.exit(main())
