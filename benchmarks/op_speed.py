"""Time our forms of mmcv's ops in TorchScript against mmcv's own; only with compiled mmcv is that a figure.

NMS: ours keeps the first 100 boxes, mmcv's finds all that stay. RoIAlign cuts 1,000 regions out of a 512x512 picture's maps, as Mask R-CNN
does. Deformable convolution has the sizes of ResNet-50's third and fourth stage. Shares of a detector's time: detector_speed.py.
    python benchmarks/op_speed.py --out benchmarks/results/op_speed.json
    python benchmarks/op_speed.py --device cuda --rounds 100 --out /tmp/op_speed.json
"""
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from common import quiet, write
from formats import PAUSE, spread
from rounds import Others, in_turn, paired
from torch import Tensor, nn

# Of NMS: how many boxes, how they lie, and how many are kept.
COUNTS, CROWDS, LIMIT = (1000, 5000), ('clustered', 'sparse', 'chained'), 100
CHANNELS, SIDE, REGIONS = 256, 512, 1000
# Channels and side of the maps that a deformable convolution gets.
STAGES = ((256, 32), (512, 16))

# Calls before those that are timed, on a GPU.
WARM = 20

Case = tuple[str, str, Callable[..., Any], Callable[..., Any], tuple[Any, ...]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--boxes', nargs='+', type=int, default=COUNTS, help='how many NMS gets')
    parser.add_argument('--out', type=Path, required=True)
    args = parser.parse_args()
    quiet()
    others = Others()
    rows = timed(torch.device(args.device), args.rounds, args.boxes)
    write(args.out, rows, device=args.device, rounds=args.rounds, threads=torch.get_num_threads(), others=others.load())
    for row in rows:
        print(in_words(row), flush=True)
    return 0


def in_words(row: dict[str, Any]) -> str:
    return (f"{row['op']:<24}{row['case']:<28}{row['ratio']['median']:.2f} of the time of {row['kernels']}, "
            f"{row['mmcv']['p50_s'] * 1000:.1f} ms, error {row['error']:.1e}")


def timed(device: torch.device, rounds: int, counts: Sequence[int] = COUNTS) -> list[dict[str, Any]]:
    """Return for each case the time of ours over mmcv's, and the largest error of mmcv's largest value."""
    from mmexport.compat import provide_mmcv_ext
    # Ours against the reference kernels of mmcv-lite shows that the script works, and is no figure.
    kernels = 'mmcv' if provide_mmcv_ext() == 'compiled' else 'the reference kernels'

    def clock() -> float:
        if device.type == 'cuda':
            torch.cuda.synchronize(device)
        return time.perf_counter()

    rows = []
    with torch.no_grad():
        for op, case, theirs, ours, inputs in cases(device, counts):
            expected, actual = theirs(*inputs), ours(*inputs)
            for _ in range(WARM if device.type == 'cuda' else 0):
                theirs(*inputs), ours(*inputs)
            seconds = in_turn({'mmcv': lambda _, run=theirs, inputs=inputs: run(*inputs),
                               'ours': lambda _, run=ours, inputs=inputs: run(*inputs)}, None, rounds, clock, lambda: time.sleep(PAUSE))
            rows.append(dict(op=op, case=case, kernels=kernels, error=error(expected, actual), ratio=paired(seconds, 'ours', 'mmcv'),
                             mmcv=spread(seconds['mmcv']), ours=spread(seconds['ours'])))
    return rows


def cases(device: torch.device, counts: Sequence[int]) -> Iterator[Case]:
    """Yield op, case, mmcv's, ours and the inputs."""
    for count in counts:
        for kind in CROWDS:
            boxes = crowd(kind, count).to(device)
            yield 'NMS', f'{count} boxes, {kind}', *suppressions(boxes), (boxes,)
    for name, layer, inputs in layers(device):
        patch = 'RoIAlign' if name.startswith('RoIAlign') else 'DeformableConvolution'
        yield name.partition(',')[0], name.partition(', ')[2], layer, traced(layer, inputs, patch), inputs


def suppressions(boxes: Tensor) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return mmcv's suppression and ours: which boxes stay, of boxes in the order of their scores."""
    from mmcv.ops import nms

    from mmexport.ops.nms import first_kept
    scores = torch.linspace(1, 0.1, len(boxes), device=boxes.device)
    taking = torch.ones(1, len(boxes), dtype=torch.bool, device=boxes.device)
    ours = torch.jit.trace(lambda boxes, taking: first_kept(boxes, taking, 0.5, LIMIT), (boxes[None], taking), check_trace=False)

    def kept(boxes: Tensor) -> Tensor:
        index, found = ours(boxes[None], taking)
        return index[0, :int(found)]

    return lambda boxes: nms(boxes, scores, 0.5)[1][:LIMIT], kept


def layers(device: torch.device) -> Iterator[tuple[str, nn.Module, tuple[Any, ...]]]:
    from mmcv.ops import DeformConv2d, ModulatedDeformConv2d
    from mmdet.models.roi_heads.roi_extractors import SingleRoIExtractor
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device)

    for size, regions in ((7, REGIONS), (14, 100)):
        extractor = SingleRoIExtractor(dict(type='RoIAlign', output_size=size, sampling_ratio=0), CHANNELS, [4, 8, 16, 32])
        corners = torch.rand(regions, 2, generator=generator) * SIDE * 0.8
        sides = SIDE * 0.9 * torch.rand(regions, 2, generator=generator) ** 2 + 4
        boxes = torch.cat([torch.zeros(regions, 1), corners, (corners + sides).clamp(max=SIDE)], dim=1).to(device)
        maps = tuple(noise(1, CHANNELS, SIDE // stride, SIDE // stride) for stride in (4, 8, 16, 32))
        yield f'RoIAlign, {regions} regions, {size}x{size}', extractor.to(device), (maps, boxes)
    for channels, side in STAGES:
        size = f'{channels} channels, {side}x{side}'
        x, offset, mask = noise(1, channels, side, side), 2 * noise(1, 18, side, side), noise(1, 9, side, side).sigmoid()
        yield f'DCN, {size}', DeformConv2d(channels, channels, 3, padding=1).to(device), (x, offset)
        yield f'DCNv2, {size}', ModulatedDeformConv2d(channels, channels, 3, padding=1).to(device), (x, offset, mask)


def traced(layer: nn.Module, inputs: tuple[Any, ...], patch: str) -> Callable[..., Any]:
    from mmexport import patched
    with patched([patch]):
        return torch.jit.trace(layer.eval(), inputs, check_trace=False)  # type: ignore[no-any-return]


def error(expected: Tensor, actual: Tensor) -> float:
    """Return the largest error, of the largest value; infinity if another number of boxes stays, or others."""
    if expected.dtype == torch.long:
        return 0.0 if torch.equal(expected, actual) else float('inf')
    return float((expected - actual).abs().max() / expected.abs().max())


def crowd(kind: str, count: int) -> Tensor:
    """Return boxes (count, 4) in the order of their scores."""
    generator = torch.Generator().manual_seed(0)
    if kind == 'chained':
        left = torch.arange(count) * 4.0
        return torch.stack([left, torch.zeros(count), left + 10, torch.full((count,), 10.0)], dim=1)
    centres = torch.rand(20 if kind == 'clustered' else count, 2, generator=generator) * 1000
    corners = centres[torch.randint(len(centres), (count,), generator=generator)] + torch.randn(count, 2, generator=generator) * 5
    return torch.cat([corners, corners + 20 + 40 * torch.rand(count, 2, generator=generator)], dim=1)


if __name__ == '__main__':
    sys.exit(main())
