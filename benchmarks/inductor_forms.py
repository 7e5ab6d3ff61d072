"""Time AOTInductor files with all of `aotinductor/forms.py` and without each, interleaved, on one thread: is each worth its code?

A form of an operator that the model does not have is not timed: the files would be the same.

    python benchmarks/inductor_forms.py --out benchmarks/results/inductor_forms.json
"""
from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from common import CONFIGS, quiet, write
from rounds import Others, in_turn, paired

# SegFormer resizes; Swin rolls its windows, unfolds neighbourhoods and resizes.
MODELS = ('segformer_b0', 'upernet_swin')
ALL = 'all forms'


def main() -> int:
    args = parse()
    quiet()
    rows: list[dict[str, Any]] = []
    for name in args.configs:
        rows.append(row(name, args))
        print(rows[-1], flush=True)
        write(args.out, rows, size=args.size, rounds=args.rounds, clock='CPU', threads=1)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--configs', nargs='+', default=MODELS, help='names from configs/')
    parser.add_argument('--size', nargs=2, type=int, default=(256, 256), metavar=('H', 'W'))
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--out', type=Path, required=True)
    return parser.parse_args()


def row(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Compile the files of one config, compare them, and return their times."""
    import torch

    from mmexport.backends.aotinductor.forms import FORMS
    from mmexport.model.config import load_config
    from mmexport.seeding.checkpoint import write_checkpoint
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        cfg = load_config(CONFIGS / f'{name}.py')
        cfg.export = {**cfg.get('export', {}), 'backends': ['aotinductor'], 'outputs': 'raw', 'inputs': dict(shape=tuple(args.size))}
        checkpoint = Path(folder) / 'weights.pth'
        write_checkpoint(cfg, checkpoint)
        rewritten: set[Any] = set()
        forms = {op: counted(op, form, rewritten) for op, form in FORMS.items()}
        contestants, compile_s = {}, {}
        contestants[ALL], compile_s[ALL] = compiled(cfg, checkpoint, Path(folder) / 'all', forms)
        for op in list(rewritten):
            left = {other: form for other, form in FORMS.items() if other is not op}
            kind = f'without {op}'
            contestants[kind], compile_s[kind] = compiled(cfg, checkpoint, Path(folder) / str(op), left)
        image = torch.rand(1, 3, *args.size)
        with torch.no_grad():
            answers = {kind: run(image) for kind, run in contestants.items()}
            others = Others()
            seconds = in_turn(contestants, image, args.rounds, time.process_time)
    difference = max(float((one - other).abs().max() / one.abs().max())
                     for rest in answers.values() for one, other in zip(answers[ALL], rest, strict=True))
    return dict(config=name, compile_s=compile_s, largest_difference=difference,
                with_over={kind: paired(seconds, ALL, kind) for kind in contestants if kind != ALL},
                median_s={kind: statistics.median(times) for kind, times in seconds.items()}, load_of_others=others.load())


def counted(op: Any, form: Callable[..., Any], used: set[Any]) -> Callable[..., Any]:
    """Return the form, which adds its operator to `used` when it is called."""
    def call(*args: Any, **kwargs: Any) -> Any:
        used.add(op)
        return form(*args, **kwargs)
    return call


def compiled(cfg: Any, checkpoint: Path, folder: Path, forms: dict[Any, Any]) -> tuple[Callable[..., Any], float]:
    """Export with these forms; return the loaded file and the seconds that it took to compile.

    Raises:
        RuntimeError: the export failed.
    """
    from mmexport import Exporter
    exporter = Exporter(cfg, str(checkpoint), folder, checking=False, diagnose=False)
    with mock.patch('mmexport.backends.aotinductor.forms.FORMS', forms):
        report, = exporter.run()
    if report.failures:
        raise RuntimeError(f'{folder.name}: {report.failures}')
    artifact, = report.artifacts
    return exporter.backends[0].load(artifact, 'cpu'), artifact.manifest['aotinductor']['compile_s']


if __name__ == '__main__':
    sys.exit(main())
