"""Time AOTInductor files with and without `aotinductor/forms.py`, interleaved, on one thread: is the rewriting worth its code?

    python benchmarks/inductor_forms.py --out benchmarks/results/inductor_forms.json
"""
from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from common import CONFIGS, quiet, write
from rounds import Others, in_turn, paired

# Resizes by a size that is open; rolled windows; unfolded neighbourhoods.
MODELS = ('segformer_b0', 'upernet_swin', 'mask2former_r50')


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
    """Compile both files of one config, compare them, and return their times."""
    import torch

    from mmexport import Exporter
    from mmexport.model.config import load_config
    from mmexport.seeding.checkpoint import write_checkpoint
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        cfg = load_config(CONFIGS / f'{name}.py')
        cfg.export = {**cfg.get('export', {}), 'backends': ['aotinductor'], 'outputs': 'raw', 'inputs': dict(shape=tuple(args.size))}
        checkpoint = Path(folder) / 'weights.pth'
        write_checkpoint(cfg, checkpoint)
        contestants, compile_s = {}, {}
        for kind in ('with', 'without'):
            exporter = Exporter(cfg, str(checkpoint), Path(folder) / kind, checking=False, diagnose=False)
            if kind == 'with':
                report, = exporter.run()
            else:
                with mock.patch('mmexport.backends.aotinductor.forms.in_fast_forms', lambda program: program):
                    report, = exporter.run()
            if report.failures:
                return dict(config=name, problem=report.failures)
            artifact, = report.artifacts
            compile_s[kind] = artifact.manifest['aotinductor']['compile_s']
            contestants[kind] = exporter.backends[0].load(artifact, 'cpu')
        image = torch.rand(1, 3, *args.size)
        with torch.no_grad():
            answers = {kind: run(image) for kind, run in contestants.items()}
            others = Others()
            seconds = in_turn(contestants, image, args.rounds, time.process_time)
    difference = max(float((one - other).abs().max() / one.abs().max()) for one, other in zip(*answers.values(), strict=True))
    return dict(config=name, compile_s=compile_s, with_over_without=paired(seconds, 'with', 'without'), largest_difference=difference,
                median_s={kind: statistics.median(times) for kind, times in seconds.items()}, load_of_others=others.load())


if __name__ == '__main__':
    sys.exit(main())
