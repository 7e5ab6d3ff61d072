"""Audit devices in full-size families of mmseg and mmdet that build without a compiled mmcv: no false alarm may remain.

The first config of each folder is built with the weights that it starts with, and run once (``forward(mode='tensor')``) at --size.
    python benchmarks/audit_configs.py --out benchmarks/results/audit_configs.json
"""
from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import quiet, write


def main() -> int:
    args = parse()
    quiet()
    rows: list[dict[str, Any]] = []
    for package in args.packages:
        for path in families(package):
            row = audit(package, path, args.size)
            rows.append(row)
            write(args.out, rows, size=args.size)
            gc.collect()
            print(f"{row['config']:<70}{row.get('reason') or ('clean' if row['clean'] else 'FINDINGS')}", flush=True)
    audited = [row for row in rows if 'clean' in row]
    print(f"{len(audited)} audited, {sum(row['clean'] for row in audited)} clean, {len(rows) - len(audited)} do not build or run here")
    return 0 if all(row['clean'] for row in audited) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--packages', nargs='+', default=['mmseg', 'mmdet'])
    parser.add_argument('--size', nargs=2, type=int, default=(256, 256), metavar=('H', 'W'))
    parser.add_argument('--out', type=Path, required=True)
    return parser.parse_args()


def families(package: str) -> Iterator[Path]:
    """Return one config of each folder: the one of the shortest name, which is mostly the plain one."""
    from mmexport.sweep.plan import config_root
    root = config_root(package)
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and path.name != '_base_'):
        configs = sorted(folder.glob('*.py'), key=lambda path: (len(path.name), path.name))
        if configs:
            yield configs[0]


def audit(package: str, path: Path, size: tuple[int, int]) -> dict[str, Any]:
    import torch
    from mmengine.structures import BaseDataElement

    from mmexport.device import audit_model
    from mmexport.inputs.synthetic import picture
    from mmexport.model.build import build_model
    from mmexport.model.config import load_config
    name = f'{package}::{path.parent.name}/{path.name}'
    started = time.perf_counter()
    try:
        model = build_model(load_config(path))
        image = picture((1, 3, *size), 0)
        image = (image - 116) / 58
        meta = dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size, scale_factor=(1.0, 1.0))
        samples = [BaseDataElement(metainfo=meta)]
        with torch.no_grad():
            model(image, samples, mode='tensor')
        actual = audit_model(model, lambda: model(image, samples, mode='tensor'), 'cuda', (image,))
    except Exception as exc:  # What does not build or run on a CPU without compiled ops is a row with the reason, not a gap.
        text = str(exc).strip()
        return dict(config=name, reason=f'{type(exc).__name__}: {(text.splitlines() or [""])[-1][:160]}')
    return dict(config=name, clean=actual.clean, ops=actual.ops, audit_s=round(actual.seconds, 1),
                seconds=round(time.perf_counter() - started, 1), findings=[finding.as_dict() for finding in actual.findings],
                branches=len(actual.branches))


if __name__ == '__main__':
    sys.exit(main())
