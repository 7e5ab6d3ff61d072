"""Export detectors of full size at 800x1344 by the default command, and load each file in a process without OpenMMLab.

Seeded weights, outputs `final`, TorchScript; every other shape is the command's own. With compiled mmcv, eager runs on its kernels.
    python benchmarks/whole_detectors.py --out benchmarks/results/whole_detectors.json
    python benchmarks/whole_detectors.py --configs dino --again --out benchmarks/results/whole_detectors.json
    python benchmarks/whole_detectors.py --backend onnx torch_export openvino --out benchmarks/results/whole_detectors_formats.json
    python benchmarks/whole_detectors.py --backend openvino --configs dino --again --out benchmarks/results/whole_detectors_formats.json
Those with `--backend` export to other formats, and load none of them again; the last keeps the cells of other formats, with their commit.
Weights are kept where `--weights` says, and taken again. `--cfg-options export.verify.batch=2` is for what does not fit into memory.
"""
from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import COMMIT, python, quiet, tool, write
from formats import last

CONFIGS = {'dino': 'mmdet::dino/dino-4scale_r50_8xb2-12e_coco.py',
           'deformable_detr': 'mmdet::deformable_detr/deformable-detr_r50_16xb2-50e_coco.py',
           'detr': 'mmdet::detr/detr_r50_8xb2-150e_coco.py',
           'mask_rcnn': 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py',
           'faster_rcnn': 'mmdet::faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py',
           'cascade_rcnn': 'mmdet::cascade_rcnn/cascade-mask-rcnn_r50_fpn_1x_coco.py',
           'retinanet': 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py',
           'fcos': 'mmdet::fcos/fcos_r50-caffe_fpn_gn-head_1x_coco.py',
           'atss': 'mmdet::atss/atss_r50_fpn_1x_coco.py',
           'yolox': 'mmdet::yolox/yolox_s_8xb8-300e_coco.py',
           'rtmdet': 'mmdet::rtmdet/rtmdet_s_8xb32-300e_coco.py',
           'rtmdet_ins': 'mmdet::rtmdet/rtmdet-ins_s_8xb32-300e_coco.py',
           'mask2former_panoptic': 'mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco-panoptic.py'}
# What the loading process must not find.
OPENMMLAB = ('mmcv', 'mmdet', 'mmengine', 'mmseg', 'mmexport')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--configs', nargs='+', default=[*CONFIGS], choices=[*CONFIGS])
    parser.add_argument('--shape', nargs=2, type=int, default=(800, 1344), metavar=('H', 'W'))
    parser.add_argument('--backend', nargs='+', default=['torchscript'])
    parser.add_argument('--again', action='store_true', help='run rows again that have a result')
    parser.add_argument('--weights', type=Path, help='a folder for the checkpoints, which are written anew without it')
    parser.add_argument('--cfg-options', nargs='+', default=[], help='of the command; a row holds them by format')
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--load', type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        print(json.dumps(loaded(args.load, args.shape)))
        return 0
    quiet()
    rows: dict[str, Any] = {row['config']: row for row in json.loads(args.out.read_text())['rows']} if args.out.is_file() else {}
    for name in args.configs:
        if name not in rows or args.again:
            found = whole(name, args.shape, args.backend, args.weights, args.cfg_options)
            options = dict(options=dict.fromkeys(args.backend, args.cfg_options)) if args.cfg_options else {}
            rows[name] = joined(rows.get(name, {}), dict(config=name, **found, **options, commit=COMMIT))
            print(json.dumps(rows[name])[:400], flush=True)
            known = dict.fromkeys(kind for row in rows.values() for kind in row.get('formats', {}))
            write(args.out, [rows[each] for each in CONFIGS if each in rows], shape=args.shape, backend=[*known] or args.backend)
    return 0 if all(row['passed'] for row in rows.values()) else 1


def joined(before: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return `row` with the formats of `before` that were not run again, their options, and the commit that those are of."""
    kept = {kind: result for kind, result in before.get('formats', {}).items() if kind not in row.get('formats', {kind: ''})}
    if not kept:
        return row
    formats = {kind: {**kept, **row['formats']}[kind] for kind in dict.fromkeys([*before['formats'], *row['formats']])}
    earlier = {kind: before.get('earlier', {}).get(kind, before['commit']) for kind in kept}
    options = {**{kind: given for kind, given in before.get('options', {}).items() if kind in kept}, **row.get('options', {})}
    passed = all(result == 'PASS' for result in formats.values())
    return dict(row, formats=formats, earlier=earlier, passed=passed, **(dict(options=options) if options else {}))


def whole(name: str, shape: list[int], backends: list[str], weights: Path | None, options: list[str]) -> dict[str, Any]:
    """Return the result of one export, and what a TorchScript file answers where nothing of OpenMMLab can be imported."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, work_dir = (weights or Path(folder)) / f'{name}.pth', Path(folder) / 'work'
        if not checkpoint.is_file():
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            made = tool('make_checkpoint', CONFIGS[name], checkpoint)
            if made.returncode:
                return dict(passed=False, reason=last(made))
        started = time.perf_counter()
        done = tool('export', CONFIGS[name], checkpoint, '--backend', *backends, '--work-dir', work_dir, '--shape', *shape,
                    '--no-samples', '--no-diagnose', *(['--cfg-options', *options] if options else []))
        seconds = round(time.perf_counter() - started)
        places = [place for place in (work_dir / 'report.json', work_dir / 'failed' / 'report.json') if place.is_file()]
        if not places:
            return dict(passed=False, reason=last(done), seconds=seconds)
        report = json.loads(places[0].read_text())
        if backends != ['torchscript']:
            samples = {row['sample'] for artifact in report['artifacts'] for row in artifact['result']['rows']}
            return dict(passed=report['passed'], seconds=seconds, formats=by_format(report, backends), samples=sorted(samples),
                        mmcv_ops=report['versions']['mmcv_ops'])
        rows = [row for artifact in report['artifacts'] for row in artifact['result']['rows'] if row['stage'] == 'artifact vs eager']
        outcome = dict(passed=report['passed'], seconds=seconds, samples=sorted({row['sample'] for row in rows}),
                       rows={row['output']: row['metrics'] for row in rows if row['metrics']},
                       box_error=max((row['metrics']['box_error'] for row in rows if 'box_error' in row['metrics']), default=None),
                       choices_followed=report['artifacts'][0]['choices_followed'] if report['artifacts'] else {},
                       mmcv_ops=report['versions']['mmcv_ops'], reference_kernels=sorted(report['versions'].get('reference_kernels', ())))
        if not report['passed']:
            return dict(outcome, reason=report['artifacts'][0]['reason'])
        file, = (work_dir / 'torchscript').glob('*.pt')
        alone = python(Path(__file__), '--load', file, '--shape', *shape, '--out', file)
        return dict(outcome, alone=json.loads(alone.stdout) if alone.returncode == 0 else last(alone))


def by_format(report: dict[str, Any], backends: list[str]) -> dict[str, str]:
    """Return ``PASS`` or the reason of each format."""
    reasons = {**{artifact['backend']: artifact['reason'] for artifact in report['artifacts']}, **report['failures']}
    # What test_step and branches find is true of each format.
    wrong = any(row['passed'] is False for row in report['pipelines']) or report['branches']['unresolved']
    of_all = report['reasons'][-1] if wrong else None
    return {name: reasons.get(name, 'no file was made') or of_all or 'PASS' for name in backends}


def loaded(file: Path, shape: list[int]) -> dict[str, Any]:
    """Return the shapes of a file's answer to noise."""
    import torch
    sys.modules.update(dict.fromkeys(OPENMMLAB))
    with torch.no_grad():
        answer = torch.jit.load(file)(torch.rand(1, 3, *shape) * 255)
    named = answer if isinstance(answer, dict) else dict(enumerate(answer if isinstance(answer, tuple) else (answer,)))
    return {str(name): list(value.shape) for name, value in named.items()}


if __name__ == '__main__':
    sys.exit(main())
