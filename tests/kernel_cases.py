"""Define inputs for mmcv's kernels; `tests/record_kernels.py` recorded what compiled mmcv makes of them.

The inputs come from numpy's `RandomState`, whose numbers never change, so that only results are recorded.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Kernel = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """Hold one call of a kernel: its arguments, and which of them it writes.

    Attributes:
        copies: how often each box is there. Of equal boxes with equal scores mmcv keeps any, so their numbers count as one.
    """

    kernel: str
    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    writes: tuple[int, ...] = ()
    copies: int = 1

    def run(self, kernel: Kernel) -> list[Tensor]:
        """Return what the kernel returns and writes."""
        args = [arg.clone() if isinstance(arg, Tensor) else arg for arg in self.args]
        returned = kernel(*args, **self.options)
        if self.kernel == 'nms_match':
            # Groups of different lengths, in one tensor: a length before each.
            return [torch.tensor([value for group in returned for value in (len(group), *(place // self.copies for place in group))],
                                 dtype=torch.int64)]
        if self.kernel == 'nms':
            return [returned // self.copies]
        if self.kernel == 'softnms':
            return [returned, args[2][:len(returned)]]
        return [args[number] for number in self.writes] if self.writes else [returned]


def boxes(kind: str, count: int, seed: int) -> Tensor:
    """Return boxes (count, 4) in x1 y1 x2 y2."""
    draw = np.random.RandomState(seed)
    start, size = draw.uniform(0, 100, (count, 2)), draw.uniform(1, 60, (count, 2))
    if kind == 'clustered':
        start = draw.randint(0, 4, (count, 2)) * 40 + draw.uniform(0, 8, (count, 2))
    elif kind == 'chained':
        start = np.stack([np.arange(count) * 6.0, np.zeros(count)], 1)
        size = np.full((count, 2), 20.0)
    elif kind == 'degenerate':
        size = size * draw.choice([0.0, 1.0, -0.5], (count, 2))
    elif kind == 'huge':
        start, size = start * 1e5, size * 1e5
    return torch.tensor(np.concatenate([start, start + size], 1), dtype=torch.float32)


def scores(count: int, seed: int) -> Tensor:
    """Return scores without ties."""
    return torch.tensor((np.random.RandomState(seed).permutation(count) + 1) / (count + 1), dtype=torch.float32)


def values(shape: tuple[int, ...], seed: int, scale: float = 1.0) -> Tensor:
    return torch.tensor(np.random.RandomState(seed).randn(*shape) * scale, dtype=torch.float32)


def cases() -> Iterator[Case]:
    """Yield the cases of the kernels that compiled mmcv 2.1.0 has on a CPU."""
    yield from _suppressions()
    yield from _regions()
    yield from _convolutions()
    for kind, name in enumerate(('collect', 'distribute')):
        for mask, size in (((3, 5), (4, 6)), ((7, 7), (3, 4))):
            yield Case('psamask_forward', f'{name} {mask} {size}',
                       (values((2, mask[0] * mask[1], *size), 7), torch.zeros(2, size[0] * size[1], *size)),
                       dict(psa_type=kind, num_=2, h_feature=size[0], w_feature=size[1], h_mask=mask[0], w_mask=mask[1],
                            half_h_mask=(mask[0] - 1) // 2, half_w_mask=(mask[1] - 1) // 2), writes=(1,))
    for mode in (0, 1):
        for aligned in (False, True):
            for offset in (0, 1):
                for kind in ('random', 'degenerate', 'huge'):
                    yield Case('bbox_overlaps', f'mode {mode} aligned {aligned} offset {offset} {kind}',
                               (boxes(kind, 12, 3), boxes(kind, 12, 4), torch.zeros(12) if aligned else torch.zeros(12, 12)),
                               dict(mode=mode, aligned=aligned, offset=offset), writes=(2,))


def _suppressions() -> Iterator[Case]:
    kinds = [(kind, count) for kind in ('random', 'clustered', 'chained', 'degenerate', 'huge') for count in (1, 60)] + [('random', 0)]
    for number, (kind, count) in enumerate(kinds):
        where, best = boxes(kind, count, number), scores(count, number + 50)
        for threshold in (0.3, 0.5, 0.75):
            for offset in (0, 1):
                yield Case('nms', f'{kind} {count} {threshold} {offset}', (where, best), dict(iou_threshold=threshold, offset=offset))
            if count:
                yield Case('nms_match', f'{kind} {count} {threshold}', (torch.cat((where, best[:, None]), 1),),
                           dict(iou_threshold=threshold))
        for method in (0, 1, 2):
            for least in (0.001, 0.3):
                yield Case('softnms', f'{kind} {count} method {method} least {least}', (where, best, torch.zeros(count, 5)),
                           dict(iou_threshold=0.3, sigma=0.5, min_score=least, method=method, offset=number % 2))
    for number, kind in enumerate(('random', 'clustered', 'chained', 'huge')):
        where, best = (part.repeat_interleave(4, 0) for part in (boxes(kind, 40, number + 20), scores(40, number + 70)))
        for threshold in (0.3, 0.5):
            yield Case('nms', f'{kind} tied {threshold}', (where, best), dict(iou_threshold=threshold, offset=0), copies=4)
            yield Case('nms_match', f'{kind} tied {threshold}', (torch.cat((where, best[:, None]), 1),), dict(iou_threshold=threshold),
                       copies=4)


def _regions() -> Iterator[Case]:
    feature = values((2, 3, 13, 17), 1, 4.0)
    draw = np.random.RandomState(2)
    start, size = draw.uniform(-30, 120, (12, 2)), draw.uniform(0, 90, (12, 2))
    size[:2] = 0
    rois = torch.tensor(np.concatenate([draw.randint(0, 2, (12, 1)), start, start + size], 1), dtype=torch.float32)
    for mode in (0, 1):
        for aligned in (False, True):
            for ratio in (0, 1, 2):
                for bins in ((7, 7), (2, 3)):
                    for name, regions in (('random', rois), ('none', rois[:0])):
                        shape = (len(regions), 3, *bins)
                        yield Case('roi_align_forward', f'mode {mode} aligned {aligned} ratio {ratio} bins {bins} {name}',
                                   (feature, regions, torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)),
                                   dict(aligned_height=bins[0], aligned_width=bins[1], spatial_scale=0.125, sampling_ratio=ratio,
                                        pool_mode=mode, aligned=aligned), writes=(2,))


def _convolutions() -> Iterator[Case]:
    settings = (  # kernel, stride, padding, dilation, groups, groups of offsets, scale of offsets
        ((3, 3), (1, 1), (1, 1), (1, 1), 1, 1, 1.0), ((3, 3), (2, 1), (1, 2), (1, 2), 2, 2, 2.0),
        ((1, 3), (1, 2), (0, 1), (1, 1), 1, 2, 30.0), ((3, 3), (1, 1), (2, 2), (2, 2), 4, 4, 0.0))
    for number, (kernel, stride, padding, dilation, groups, deform_groups, scale) in enumerate(settings):
        height, width = ((size + 2 * pad - step * (side - 1) - 1) // move + 1
                         for size, pad, step, side, move in zip((9, 11), padding, dilation, kernel, stride, strict=True))
        taps = kernel[0] * kernel[1]
        feature, weight = values((2, 8, 9, 11), number), values((4, 8 // groups, *kernel), number + 10)
        offset = values((2, deform_groups * taps * 2, height, width), number + 20, scale)
        output, empty = torch.zeros(2, 4, height, width), torch.zeros(0)
        yield Case('deform_conv_forward', f'{number}', (feature, weight, offset, output, empty, empty),
                   dict(kW=kernel[1], kH=kernel[0], dW=stride[1], dH=stride[0], padW=padding[1], padH=padding[0], dilationW=dilation[1],
                        dilationH=dilation[0], group=groups, deformable_group=deform_groups, im2col_step=2), writes=(3,))
        mask = values((2, deform_groups * taps, height, width), number + 30).sigmoid()
        for bias in (False, True):
            yield Case('modulated_deform_conv_forward', f'{number} bias {bias}',
                       (feature, weight, values((4,), 5) if bias else empty, empty, offset, mask, output, empty),
                       dict(kernel_h=kernel[0], kernel_w=kernel[1], stride_h=stride[0], stride_w=stride[1], pad_h=padding[0],
                            pad_w=padding[1], dilation_h=dilation[0], dilation_w=dilation[1], group=groups,
                            deformable_group=deform_groups, with_bias=bias), writes=(6,))
    # Offsets and factors of a larger map, parts of one tensor: so DyHead calls it.
    both = values((2, 2 * 27, 12, 15), 40, 2.0)
    yield Case('modulated_deform_conv_forward', 'of a larger map',
               (values((2, 4, 6, 8), 41), values((4, 4, 3, 3), 42), empty, empty, both[:, :36], both[:, 36:].sigmoid(),
                torch.zeros(2, 4, 6, 8), empty),
               dict(kernel_h=3, kernel_w=3, stride_h=1, stride_w=1, pad_h=1, pad_w=1, dilation_h=1, dilation_w=1, group=1,
                    deformable_group=2, with_bias=False), writes=(6,))
