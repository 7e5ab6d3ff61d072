"""Export and verify small variants of mmdet's detectors in every format, each in a process of its own; docs/detectors.md has the table.

    python benchmarks/detectors.py --out benchmarks/results/detectors.json
    python benchmarks/detectors.py --names retinanet --again
    python benchmarks/detectors.py --formats torchscript --out benchmarks/results/detectors_compiled.json
    python benchmarks/detectors.py --formats aotinductor --out benchmarks/results/detectors_aotinductor.json --names retinanet detr
    python benchmarks/detectors.py --img-shape --formats torchscript onnx --names atss detr
The third, with compiled mmcv, has the same files judged by mmcv's own kernels: `make test-compiled`. With --img-shape a file has the
sizes of the pictures as second input, pictures of a batch have padding, it is traced at 320x320 and checked at 384x448, and the
results are those of detectors_padded.json.
"""
from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import ROOT, quiet, row_apart, write

FORMATS = ('torchscript', 'onnx', 'torch_export', 'openvino')
# mmdet's mask classifiers, small, by what their test_cfg asks for.
CLASSIFIERS = {f'{name}_{what}': (f'{name}_r50', what) for name in ('mask2former', 'maskformer') for what in ('panoptic', 'instance')}
# Of `--img-shape`: what is traced and what is checked; for necks that join maps of multiples of 128 the second.
SIZES = {32: ((320, 320), ((384, 448), (256, 896))), 128: ((256, 384), ((384, 512), (256, 896)))}
# They take no padding: the file has no second input.
REFUSE = ('centernet', 'cornernet', 'yolact', *CLASSIFIERS)
RESULTS, PADDED = (ROOT / 'benchmarks' / 'results' / f'{name}.json' for name in ('detectors', 'detectors_padded'))


def main() -> int:
    args = parse()
    quiet()
    from tests.detectors import ALL
    if args.one:
        print(json.dumps(run(args.one, args.formats, args.img_shape)))
        return 0
    out = args.out or (PADDED if args.img_shape else RESULTS)
    rows: dict[str, Any] = {row['name']: row for row in json.loads(out.read_text())['rows']} if out.is_file() else {}
    known = [*ALL, *CLASSIFIERS]
    for name in args.names or known:
        if name not in rows or args.again:
            rows[name] = row_apart(__file__, name, args.limit, '--formats', *args.formats, *(['--img-shape'] if args.img_shape else []))
            print(name, json.dumps(rows[name]), flush=True)
            write(out, [rows[each] for each in known if each in rows], limit_s=args.limit, small=True,
                  **({} if args.formats == list(FORMATS) else dict(formats=args.formats)))
    if out.resolve() in (RESULTS, PADDED):
        document([rows[each] for each in known if each in rows], out.stem)
    return 0 if all(result == 'PASS' for row in rows.values() for result in row.get('formats', {'none': 'no result'}).values()) else 1


def document(rows: list[dict[str, Any]], name: str) -> None:
    """Write the table of docs/detectors.md that has the name of its results."""
    from tests.detectors import shape_of
    columns = ('config of mmdet', *FORMATS, 'traced at', 'detections in a picture or batch')
    lines = [f"| {' | '.join(columns)} |", '|---' * len(columns) + '|']
    for row in rows:
        cells = [row.get('formats', {}).get(kind, row.get('reason', 'not run')).partition(':')[0] for kind in FORMATS]
        # Rows of before it was recorded have the size that is the model's own in the tests.
        traced = 'x'.join(map(str, row.get('traced') or shape_of(row['name'])[2:]))
        traced += ', no padding' if row.get('padding') is False and name == PADDED.stem else ''
        lines.append(f"| {row.get('config', row['name'])} | {' | '.join(cells)} | {traced} | "
                     f"{' to '.join(map(str, row.get('detections', ['-'])))} |")
    lines.append('')
    for row in rows:
        failing: dict[str, list[str]] = {}
        for kind, result in row.get('formats', {}).items():
            if result != 'PASS':
                failing.setdefault(result.removeprefix('FAIL: '), []).append(kind)
        lines += [f"* {row['config']}, {', '.join(kinds)}: {reason}" for reason, kinds in failing.items()]
    text = f'<!-- {name} -->\n' + '\n'.join(lines) + f'\n<!-- /{name} -->'
    page = ROOT / 'docs' / 'detectors.md'
    page.write_text(re.sub(f'<!-- {name} -->\n.*?<!-- /{name} -->', lambda match: text, page.read_text(), flags=re.S))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--names', nargs='*', help=f'names from tests/detectors.py, and {", ".join(CLASSIFIERS)} (all)')
    parser.add_argument('--formats', nargs='+', default=list(FORMATS), choices=[*FORMATS, 'aotinductor'])
    parser.add_argument('--again', action='store_true', help='run rows again that have a result')
    parser.add_argument('--limit', type=int, default=900, help='seconds for a detector, all formats together')
    parser.add_argument('--img-shape', action='store_true', help='export.inputs.img_shape')
    parser.add_argument('--one', help=argparse.SUPPRESS)
    parser.add_argument('--out', type=Path)
    return parser.parse_args()


def run(name: str, kinds: list[str], img_shape: bool) -> dict[str, Any]:
    """Return ``PASS`` or the reason by format, how many detections were compared, and mmexport's kernels that eager ran on."""
    from matrix_row import judged

    from mmexport import Exporter
    from tests.detectors import ALL, MULTIPLES, seeded_detector, tiny_detector
    from tests.tiny import mask_classifier
    with tempfile.TemporaryDirectory() as folder:
        if name in CLASSIFIERS:
            config, what = CLASSIFIERS[name]
            cfg, model = mask_classifier(config, panoptic=what == 'panoptic', instance=what == 'instance', backends=kinds)
        else:
            cfg = tiny_detector(name, backends=kinds)
        if img_shape:
            traced, others = SIZES[128 if MULTIPLES.get(name) == 128 else 32]
            cfg.export.inputs.update(shape=(1, 3, *traced), img_shape=name not in REFUSE)
            cfg.export.verify.update(shapes=list(others), batch=2)
        if name in ALL:
            model = seeded_detector(name, cfg.export.inputs.shape[2:] if img_shape else None)
        report, = Exporter(cfg, None, folder, model=model, diagnose=False).run()
        compared = [row.metrics['rows'] for check in report.checks for row in check.rows
                    if row.output in ('detections', 'instances') and row.metrics]
        formats = {kind: judged(report, kind) for kind in kinds}
        return dict(config=ALL.get(name, name.replace('_', ', ')), formats=formats, inputs=len(report.inputs),
                    traced=list(cfg.export.inputs.shape[2:]), padding=bool(cfg.export.inputs.get('img_shape')),
                    **(dict(detections=[min(compared), max(compared)]) if compared else {}),
                    mmcv_ops=report.versions['mmcv_ops'], reference_kernels=sorted(report.versions.get('reference_kernels', ())))


if __name__ == '__main__':
    sys.exit(main())
