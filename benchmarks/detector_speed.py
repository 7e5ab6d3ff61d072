"""Time the files of detectors against mmdet's own ``predict``; only with compiled mmcv is that a figure.

Each detector is exported and verified at full size with seeded weights and `final` outputs, then timed in turn in a process of its own.
A file is timed with the way back to mmdet's results, which pastes masks into the picture: so eager's ``predict`` does. The calls of
suppression, RoIAlign and deformable convolution that a file makes are timed alone, too, ten times in a row; these ops against mmcv's:
op_speed.py.
    python benchmarks/detector_speed.py --out benchmarks/results/detector_speed.json
    python benchmarks/detector_speed.py --configs retinanet_r50 --formats torchscript --rounds 5 --out /tmp/speed.json
"""
from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from common import ROOT, python, quiet, tool, write
from formats import PAUSE, last, spread
from rounds import Others, in_turn, paired

CONFIGS = {'retinanet_r50': 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py', 'rtmdet_s': 'mmdet::rtmdet/rtmdet_s_8xb32-300e_coco.py',
           'mask_rcnn_r50': 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py',
           'faster_rcnn_r50_dcn': 'mmdet::dcn/faster-rcnn_r50-dconv-c3-c5_fpn_1x_coco.py',
           'faster_rcnn_r50_dcnv2': 'mmdet::dcnv2/faster-rcnn_r50-mdconv-c3-c5_fpn_1x_coco.py'}
FORMATS = ('torchscript', 'onnx', 'openvino', 'torch_export')
# How often an op is called in its turn: the first milliseconds after a pause are slow, and in a file it follows other work.
TIMES = 10
# Where a detector calls our forms of mmcv's ops: module and function.
OPS = {'suppression': ('mmexport.adapters.detection.boxes.suppression', 'first_kept'),
       'RoIAlign': ('mmexport.patches.roi_align', 'roi_align'),
       'deformable convolution': ('mmexport.patches.deformable_conv', 'deform_conv2d')}


def main() -> int:
    args = parse()
    quiet()
    if args.time:
        print(json.dumps(measured(args.time, args)))
        return 0
    rows = []
    for name in args.configs:
        reason = made(name, args)
        rows.append(dict(config=name, **(apart(name, args) if reason is None else dict(reason=reason))))
        print(json.dumps(rows[-1])[:400], flush=True)
        write(args.out, rows, size=args.size, rounds=args.rounds, outputs='final')
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
        ops = calls_of(adapter, image)
        contestants.update({op: repeated(calls) for op, calls in ops.items()})
        others = Others()
        seconds = in_turn(contestants, image, args.rounds, time.perf_counter, lambda: time.sleep(PAUSE))
        seconds.update({op: [each / TIMES for each in seconds[op]] for op in ops})
        load_of_others = others.load()
    return dict(threads=torch.get_num_threads(), others=load_of_others, eager=spread(seconds['eager']),
                formats={form: dict(ratio=paired(seconds, form), **spread(seconds[form])) for form in args.formats},
                ops={op: dict(calls=len(calls), share_of_torchscript=paired(seconds, op, 'torchscript') if 'torchscript' in args.formats
                              else None, **spread(seconds[op])) for op, calls in ops.items()})


def calls_of(adapter: Any, image: Any) -> dict[str, list[tuple[Callable[..., Any], tuple[Any, ...]]]]:
    """Return by op the calls that a detector makes on `image`, each traced, with its arguments."""
    from mmexport import patched
    from mmexport.utils.override import override
    calls: dict[str, list[tuple[Any, ...]]] = {op: [] for op in OPS}
    with patched('auto'), ExitStack() as recording:
        originals = {}
        for op, (place, name) in OPS.items():
            module = import_module(place)
            originals[op] = getattr(module, name)

            def recorded(*args: Any, op: str = op) -> Any:
                calls[op].append(args)
                return originals[op](*args)

            recording.enter_context(override(module, name, recorded))
        adapter(image)
    return {op: [traced(originals[op], args) for args in of_op] for op, of_op in calls.items() if of_op}


def traced(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function traced, and its tensors, in lists too; other arguments are constants of the trace."""
    import torch
    values, tree = torch.utils._pytree.tree_flatten(args)
    places = [number for number, value in enumerate(values) if isinstance(value, torch.Tensor)]

    def run(*tensors: Any) -> Any:
        filled = list(values)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        return function(*torch.utils._pytree.tree_unflatten(filled, tree))

    tensors = tuple(values[place] for place in places)
    return torch.jit.trace(run, tensors, check_trace=False), tensors


def repeated(calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> Callable[[Any], Any]:
    return lambda _: [run(*tensors) for _ in range(TIMES) for run, tensors in calls]


if __name__ == '__main__':
    sys.exit(main())
