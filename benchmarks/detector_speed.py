"""Time the files of detectors against mmdet's own ``predict``, and suppression against mmcv's; only with compiled mmcv is that a figure.

Each detector is exported and verified at full size with seeded weights and `final` outputs, then timed in turn in a process of its own.
A file is timed with the way back to mmdet's results, which pastes masks into the picture: so eager's ``predict`` does.
    python benchmarks/detector_speed.py --out benchmarks/results/detector_speed.json
    python benchmarks/detector_speed.py --configs retinanet_r50 --formats torchscript --rounds 5 --out /tmp/speed.json
"""
from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from common import ROOT, python, quiet, tool, write
from formats import PAUSE, last, spread
from rounds import Others, in_turn, paired

CONFIGS = {'retinanet_r50': 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py', 'rtmdet_s': 'mmdet::rtmdet/rtmdet_s_8xb32-300e_coco.py',
           'mask_rcnn_r50': 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'}
FORMATS = ('torchscript', 'onnx', 'openvino', 'torch_export')
# Of suppression alone: how many boxes, and how they lie.
COUNTS, CROWDS = (1000, 5000), ('clustered', 'sparse', 'chained')


def main() -> int:
    args = parse()
    quiet()
    if args.time:
        print(json.dumps(suppression(args) if args.time == 'suppression' else measured(args.time, args)))
        return 0
    rows = []
    for name in args.configs:
        reason = made(name, args)
        rows.append(dict(config=name, **(apart(name, args) if reason is None else dict(reason=reason))))
        print(json.dumps(rows[-1])[:400], flush=True)
        write(args.out, rows, size=args.size, rounds=args.rounds, outputs='final')
    write(args.out, rows, size=args.size, rounds=args.rounds, outputs='final', suppression=apart('suppression', args))
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--configs', nargs='+', default=[*CONFIGS], choices=[*CONFIGS])
    parser.add_argument('--formats', nargs='+', default=FORMATS)
    parser.add_argument('--size', nargs=2, type=int, default=(512, 512), metavar=('H', 'W'))
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--work-dir', type=Path, default=ROOT / 'work_dirs' / 'detector_speed')
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--time', help=argparse.SUPPRESS)
    return parser.parse_args()


def made(name: str, args: argparse.Namespace) -> str | None:
    """Make and verify the files that are not there; the last word of a run that did not pass."""
    checkpoint, folder = args.work_dir / f'{name}.pth', args.work_dir / name
    if all((folder / form / 'manifest.json').is_file() for form in args.formats):
        return None
    for done in (() if checkpoint.is_file() else (tool('make_checkpoint', CONFIGS[name], checkpoint),)):
        if done.returncode:
            return f'no checkpoint: {last(done)}'
    done = tool('export', CONFIGS[name], checkpoint, '--backend', *args.formats, '--shape', *args.size, '--work-dir', folder,
                '--no-diagnose', '--no-samples')
    folder.with_suffix('.txt').write_text(done.stdout + done.stderr)
    return last(done) if done.returncode else None


def apart(name: str, args: argparse.Namespace) -> dict[str, Any]:
    done = python(Path(__file__), '--time', name, '--formats', *args.formats, '--size', *args.size, '--rounds', args.rounds,
                  '--work-dir', args.work_dir, '--out', args.out)
    if done.returncode:
        return dict(reason=last(done))
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measured(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the times of each format over those of mmdet's ``predict``; both end with results in the picture."""
    import torch

    from mmexport import instance_data
    from mmexport.adapters import build_adapter
    from mmexport.checker.files import load
    from mmexport.inputs.synthetic import picture
    from mmexport.model.build import load_model
    from mmexport.model.config import load_config
    model, _ = load_model(load_config(CONFIGS[name]), str(args.work_dir / f'{name}.pth'))
    adapter: Any = build_adapter(model)
    image = picture((1, 3, *args.size), 0, adapter)

    def deployed(folder: Path, metainfos: list[dict[str, Any]]) -> Any:
        manifest = json.loads((folder / 'manifest.json').read_text())
        run, names = load(folder, manifest, torch.device('cpu')), [spec['name'] for spec in manifest['outputs']]
        return lambda image: instance_data(dict(zip(names, run(image), strict=True)), metainfos)

    with torch.no_grad():
        samples = adapter.data_samples(image)
        contestants = {'eager': lambda image: model.predict(image, samples), **{  # type: ignore[operator]
            form: deployed(args.work_dir / name / form, [sample.metainfo for sample in samples]) for form in args.formats}}
        contestants['suppression'], counts = suppressing(adapter, image)
        others = Others()
        seconds = in_turn(contestants, image, args.rounds, time.perf_counter, lambda: time.sleep(PAUSE))
        load_of_others = others.load()
    return dict(threads=torch.get_num_threads(), others=load_of_others, eager=spread(seconds['eager']),
                formats={form: dict(ratio=paired(seconds, form), **spread(seconds[form])) for form in args.formats},
                suppression=dict(boxes=counts, share_of_torchscript=paired(seconds, 'suppression', 'torchscript')
                                 if 'torchscript' in args.formats else None, **spread(seconds['suppression'])))


def suppressing(adapter: Any, image: Any) -> tuple[Any, list[int]]:
    """Return what suppresses the detector's own boxes of `image` in TorchScript, and how many boxes each call gets."""
    import torch

    from mmexport import patched
    from mmexport.adapters.detection.boxes import suppression as place
    calls: list[tuple[Any, ...]] = []
    original = place.first_kept

    def recorded(*args: Any) -> Any:
        calls.append(args)
        return original(*args)

    place.first_kept = recorded
    try:
        with patched('auto'):
            adapter(image)
    finally:
        place.first_kept = original
    traced = [(torch.jit.trace(lambda boxes, taking, rest=rest: original(boxes, taking, *rest), (boxes, taking), check_trace=False),
               boxes, taking) for boxes, taking, *rest in calls]
    return lambda _: [run(boxes, taking) for run, boxes, taking in traced], [boxes.shape[1] for _, boxes, _ in traced]


def suppression(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the times of suppression in TorchScript over mmcv's ``nms``, by number and kind of boxes."""
    import torch

    from mmexport.compat import provide_mmcv_ext
    from mmexport.ops.nms import first_kept
    provide_mmcv_ext()
    from mmcv.ops import nms

    def suppressed(boxes: Any, taking: Any) -> Any:
        return first_kept(boxes, taking, 0.5, 100)

    rows = []
    for count in COUNTS:
        for kind in CROWDS:
            boxes = crowd(kind, count)
            scores = torch.linspace(1, 0.1, count)
            taking = torch.ones(1, count, dtype=torch.bool)
            with torch.no_grad():
                ours = torch.jit.trace(suppressed, (boxes[None], taking), check_trace=False)
                contestants = {'mmcv': lambda _, boxes=boxes, scores=scores: nms(boxes, scores, 0.5)[1][:100],
                               'ours': lambda _, boxes=boxes[None], taking=taking, ours=ours: ours(boxes, taking)}
                index, found = ours(boxes[None], taking)
                same = torch.equal(contestants['mmcv'](None), index[0, :int(found)])
                seconds = in_turn(contestants, None, args.rounds, time.perf_counter)
            rows.append(dict(boxes=count, kind=kind, same=same, ratio=paired(seconds, 'ours', 'mmcv'), mmcv=spread(seconds['mmcv']),
                             ours=spread(seconds['ours'])))
    return rows


def crowd(kind: str, count: int) -> Any:
    """Return boxes (count, 4) in the order of their scores."""
    import torch
    generator = torch.Generator().manual_seed(0)
    if kind == 'chained':
        left = torch.arange(count) * 4.0
        return torch.stack([left, torch.zeros(count), left + 10, torch.full((count,), 10.0)], dim=1)
    centres = torch.rand(20 if kind == 'clustered' else count, 2, generator=generator) * 1000
    corners = centres[torch.randint(len(centres), (count,), generator=generator)] + torch.randn(count, 2, generator=generator) * 5
    return torch.cat([corners, corners + 20 + 40 * torch.rand(count, 2, generator=generator)], dim=1)


if __name__ == '__main__':
    sys.exit(main())
