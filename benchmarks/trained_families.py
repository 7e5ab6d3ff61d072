"""Train a small detector of each family on drawn scenes for some minutes, export it, and record what the check says.

Seeded weights give rows in every picture; trained ones give none in some.
    python benchmarks/trained_families.py --out benchmarks/results/trained_families.json
    python benchmarks/trained_families.py --names fcos detr --again --formats torchscript onnx
Small variants as in detectors.py; inputs are those that the export takes by itself. Weights are kept (--weights), and taken again.
"""
from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import ROOT, quiet, row_apart, write
from detectors import FORMATS

RESULTS = ROOT / 'benchmarks' / 'results' / 'trained_families.json'
STEPS, BATCH, RATE = 300, 6, 2e-3
# Decoders of queries learn slower, and at another rate.
OF_QUERIES = dict(steps=600, rate=4e-4)


def main() -> int:
    args = parse()
    quiet()
    from tests.detectors import ALL
    if args.one:
        print(json.dumps(run(args.one, args.formats, args.weights / f'{args.one}.pth')))
        return 0
    rows: dict[str, Any] = {row['name']: row for row in json.loads(args.out.read_text())['rows']} if args.out.is_file() else {}
    for name in args.names or ALL:
        if name not in rows or args.again:
            rows[name] = row_apart(__file__, name, args.limit, '--formats', *args.formats, '--weights', args.weights)
            print(name, json.dumps(rows[name]), flush=True)
            write(args.out, [rows[each] for each in ALL if each in rows], limit_s=args.limit)
    return 0 if all(result == 'PASS' for row in rows.values() for result in row.get('formats', {'none': 'no result'}).values()) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--names', nargs='*', help='names from tests/detectors.py (all)')
    parser.add_argument('--formats', nargs='+', default=list(FORMATS[:2]), choices=FORMATS)
    parser.add_argument('--again', action='store_true', help='run rows again that have a result')
    parser.add_argument('--limit', type=int, default=1800, help='seconds for a detector')
    parser.add_argument('--weights', type=Path, default=ROOT / 'work_dirs' / 'trained_families')
    parser.add_argument('--one', help=argparse.SUPPRESS)
    parser.add_argument('--out', type=Path, default=RESULTS)
    return parser.parse_args()


def run(name: str, kinds: list[str], weights: Path) -> dict[str, Any]:
    """Return the mAP of a trained detector, ``PASS`` or the reason by format, and what was compared."""
    import torch
    from matrix_row import judged
    from train_detectors import SIZE, fit, mean_average_precision, predicted

    from mmexport import Exporter
    from tests.detectors import ALL, QUERIES
    cfg, model = untrained(name, kinds)
    settings: dict[str, Any] = OF_QUERIES if name in QUERIES else dict(steps=STEPS, rate=RATE)
    if weights.is_file():
        model.load_state_dict(torch.load(weights, weights_only=True))
        model.eval()
    else:
        fit(model, name, batch=BATCH, **settings)
        weights.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), weights)
    scores = mean_average_precision(lambda picture: predicted(model, picture))
    cfg.export.inputs.shape = (1, 3, *SIZE)
    cfg.export.verify.update(shapes=None, batch=None)
    with tempfile.TemporaryDirectory() as folder:
        report, = Exporter(cfg, None, folder, model=model, diagnose=False).run()
    compared = [row.metrics for check in report.checks for row in check.rows if row.output in ('detections', 'instances') and row.metrics]
    counts = [each['rows'] for each in compared]
    # Instances without boxes of their own (SOLO) are not counted so.
    unsure = [each['rows_unsure'] / max(each['rows'], 1) for each in compared if 'rows_unsure' in each]
    return dict(config=ALL[name], mean_average_precision=scores, formats={kind: judged(report, kind) for kind in kinds},
                inputs=len(report.inputs), **settings, batch=BATCH, detections=[min(counts), max(counts)],
                most_unsure=round(max(unsure), 3) if unsure else None,
                **{key: max(each[key] for each in compared) for key in ('box_error', 'score_error')})


def untrained(name: str, kinds: list[str]) -> tuple[Any, Any]:
    """Return config and model of a small detector, whose backbone learns from its first weights."""
    import torch

    from mmexport.model.build import build_model
    from tests.detectors import tiny_detector
    torch.manual_seed(0)
    cfg = tiny_detector(name, backends=kinds)
    if cfg.model.backbone.type == 'ResNet':
        cfg.model.backbone.update(norm_eval=False, frozen_stages=-1, norm_cfg=dict(type='BN', requires_grad=True))
    # Other sizes in other steps ask a runner for the step.
    cfg.model.data_preprocessor.batch_augments = None
    model: Any = build_model(cfg)
    model.init_weights()
    return cfg, model


if __name__ == '__main__':
    sys.exit(main())
