"""Measure what rounding alone moves in eager: its noise floors, and comparisons that it may decide the other way.

Masked attention compares ``sigmoid`` with 0.5 in every cell of every layer. Of a small picture's 1e5 cells one may lie within rounding of
the threshold; whether it flips depends on the processor, and then outputs of many queries move, in a patched model or a file that is right.
A noise of 1e-6 finds such a cell by chance only, so the comparisons near a threshold are counted in eager, and inputs are moved off them.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..checker.compare import compare, lost_key, median_key, own_floors
from ..checker.samples import Sample

if TYPE_CHECKING:
    from ..adapters import Adapter
    from .eager_run import EagerRun

# Share of the input's scale that is added to it.
NOISE = 1e-6
# In an ill-conditioned model (K-Net with seeded weights) the errors of a noise and of a file are near the tolerance: a median that noise
# moves by half of it is a floor.
ILL_CONDITIONED = 0.5

# Some times what rounding moves: float32 logits of a deep model are off by about 1e-6 of their scale.
WIDTH = 2e-5
# Where an input has more such comparisons, hardly any other input of its size has none.
FEW, TRIES = 3, 8
NUDGE = 1e-2
_COMPARISONS = {overload for packet in (torch.ops.aten.lt, torch.ops.aten.le, torch.ops.aten.gt, torch.ops.aten.ge)
                for overload in (packet.Scalar, packet.Tensor)}


class NearThresholdCounter(TorchDispatchMode):
    """Count in `count` the comparisons of floats that are nearly equal. They lie within `WIDTH` of the larger side's scale."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func in _COMPARISONS and isinstance(args[0], Tensor) and args[0].is_floating_point() and args[0].numel():
            one, other = args[0], args[1]
            scale = max(float(one.abs().max()), float(other.abs().max() if isinstance(other, Tensor) else abs(other)))
            self.count += int(((one - other).abs() < WIDTH * scale).sum())
        return func(*args, **(kwargs or {}))


def move_off_thresholds(image: Tensor, count_near: Callable[[Tensor], int]) -> Tensor:
    """Return `image`, or a slightly noisy one with fewer comparisons near a threshold. With many nothing is tried.

    Args:
        count_near: counts them.
    """
    best, fewest = image, count_near(image)
    if fewest > FEW:
        return image
    for trial in range(TRIES):
        if not fewest:
            break
        nudged = image + noise(image, 2000 + trial, NUDGE)
        near = count_near(nudged)
        if near < fewest:
            best, fewest = nudged, near
    return best


def noise(image: Tensor, seed: int, share: float) -> Tensor:
    """Return normal noise of `share` of the image's scale, the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(image.shape, generator=generator).to(image.device) * share * image.abs().max()


def floors_of(adapter: Adapter, sample: Sample, image: Tensor, trials: Iterable[int], tolerance: float,
              run: Callable[[str, Tensor], EagerRun], share: float = 1.0) -> dict[str, float]:
    """Return by output the largest share of units that a noise moves beyond the tolerance. It is at least the sample's own.

    Args:
        run: runs eager on an input, under a name for the noise.
        share: of the tolerance, beyond which units of continuous outputs count; decisions keep the whole one.
    """
    specs, raw_specs = ([spec.as_dict() for spec in level_specs] for level_specs in (adapter.specs, adapter.hidden_specs))
    floors = dict(sample.floors)
    for trial in trials:
        noisy = run(f'noise {trial}', image + noise(image, trial, NOISE))
        rows = []
        for factor in {1.0, share}:
            common: dict[str, Any] = dict(sample=sample.name, stage='noise', tolerance=factor * tolerance)
            compared = compare(specs, sample.expected, list(noisy.outputs.values()), sample.evidence, **common)
            if sample.raw:
                compared += compare(raw_specs, sample.raw, list(noisy.raw.values()), sample.raw_evidence, **common)
            rows += [row for row in compared if factor == 1.0 or row.continuous]
        for row in rows:
            floors[row.output] = max(floors.get(row.output, 0.0), row.beyond or 0.0)
            if row.lost:
                floors[lost_key(row.output)] = max(floors.get(lost_key(row.output), 0.0), row.lost)
            if row.median and row.median > ILL_CONDITIONED * tolerance:
                floors[median_key(row.output)] = max(floors.get(median_key(row.output), 0.0), row.median)
    return floors


def model_floors(samples: Sequence[Sample]) -> dict[str, float]:
    """Return by output the largest floor of all samples. Those of `own_floors` count for their own sample alone."""
    floors: dict[str, float] = {}
    for sample in samples:
        for name in sample.floors.keys() - own_floors(sample.floors).keys():
            floors[name] = max(floors.get(name, 0.0), sample.floors[name])
    return floors
