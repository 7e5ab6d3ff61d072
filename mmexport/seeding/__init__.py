"""Seed weights whose outputs vary enough to compare; for demos and tests, never for results.

Plain random weights prove nothing: `attention_weights` start at zero, so that swapped attention levels show an error of 0.0;
a segmentor without calibrated norms is constant to 1e-3; random panoptic results are all void.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters import Adapter, build_adapter
from ..adapters.objectives import SEGMENTS
from ..checker.comparison import DEFAULT_TOLERANCE
from ..checker.vacuous import little_change
from ..errors import MMExportError
from ..inputs.synthetic import picture
from .calibrate import calibrate
from .constants import randomise_constants
from .initial import initialise, restore_built
from .queries import damp_branches, fit_queries, query_heads

IMAGES, IMAGE_SIDE = 16, 128
# For detectors by queries: in how many ways pictures differ in all of their queries shows on many pictures only.
IMAGES_OF_QUERIES = 64
# By how much class logits shall vary between images, in the attempts at it, each with other regions: what varies much costs segments.
ATTEMPTS = (0.02, 0.023, 0.026, 0.02, 0.023, 0.026, 0.029) * 2
# Of some initial weights (one seed in twelve) no choice of regions will do, and which seed that is depends on the processor's rounding.
DRAWS, NEXT_DRAW = 4, 1_000_003
# Larger pictures vary less than the small scenes, so the two that a verification compares (see mmexport.inputs) are looked at, at its
# size and at an odd one, and have to differ by this much more than the checker asks.
MARGIN = 1.05
ODD = (161, 97)
# Of a size up to 256, maps of stride 128 have a cell or two a side; a verification looks at pictures that are this much larger.
LARGER, LARGE = 1.625, 256
# Regions that a second stage is calibrated on. It takes most of the time, and Double-Head holds 400 kB for each after every layer: 16,000
# of them do not fit in 14 GB.
REGIONS = 2000
SCENES = ((128, 160), ODD, (256, 256), (250, 333), (160, 192))


class SeedingError(MMExportError):
    """Report that seeded weights would make a vacuous comparison."""


@torch.no_grad()
def seed_model(model: nn.Module, seed: int = 0, size: Sequence[int] = (IMAGE_SIDE, IMAGE_SIDE)) -> dict[str, Tensor]:
    """Initialise `model` in place, without downloads and without knowing its name; returns its state dict.

    ``init_weights()``, then constant parameters drawn at random, norms and class layers calibrated on 16 synthetic scenes of 128 x
    128 (64 for detectors by queries, whose attention is calibrated, too), and the readouts of mask-classification heads solved so that
    confident queries hold regions of their own. Takes under a minute for Mask2Former-R50 on two cores.

    Args:
        size: (H, W) of the pictures that the weights will be verified with.
    """
    draws = DRAWS if any(True for _ in query_heads(model)) else 1
    # Weights of a large model are copied only where they may be needed.
    built = {name: value.clone() for name, value in model.state_dict().items()} if draws > 1 else {}
    for draw in range(draws):
        if draw:
            restore_built(model, built)
        if _seed_once(model, seed, seed + draw * NEXT_DRAW, size):
            return model.state_dict()
    raise SeedingError(f'seed {seed}: no choice of regions gave {SEGMENTS} segments in each scene and outputs that follow the picture; try '
                       'another seed')


def _seed_once(model: nn.Module, seed: int, draw: int, size: Sequence[int]) -> bool:
    """Seed `model` and return whether it decides enough. `draw` decides the weights, `seed` the scenes."""
    generator = torch.Generator().manual_seed(draw)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw)
        initialise(model, generator)
        model.eval()
        randomise_constants(model, generator)
        adapter = build_adapter(model, outputs='raw')
        count = IMAGES_OF_QUERIES if hasattr(model, 'forward_transformer') else IMAGES
        images = _scenes(adapter, 7919 + seed, size, count)
        calibrate(model, partial(_run, adapter, images, max(1, REGIONS // _proposals(model))), generator,
                  lambda: [adapter.whole(picture((1, adapter.channels, *shape), 8111 + seed, adapter))
                           for shape in (size, ODD) if _takes(adapter, shape)],
                  _larger(adapter, 9001 + seed, size))
        return all(_fit_head(model, head, adapter, images, generator, seed, size) for head in query_heads(model))


def _fit_head(model: nn.Module, head: nn.Module, adapter: Adapter, images: Tensor, generator: torch.Generator, seed: int,
              size: Sequence[int]) -> bool:
    """Solve the readouts of `head` until the model decides enough. Return whether it does."""
    damp_branches(head)
    for varies_by in ATTEMPTS:
        fit_queries(model, head, lambda: adapter.raw(images), generator, varies_by)
        if rich_enough(model, seed) and all(varied_enough(model, shape) for shape in ((2, *ODD), (1, *ODD), (1, *size))):
            return True
    return False


def rich_enough(model: nn.Module, seed: int) -> bool:
    """Return whether the model decides enough on each of five scenes. Its adapter measures it."""
    adapter = build_adapter(model, outputs='raw')
    for number, scene in enumerate(SCENES):
        image = picture((1, adapter.channels, *scene), 6007 + 10 * seed + number, adapter)
        if not adapter.decides_enough(adapter.raw(image), image):
            return False
    return True


def varied_enough(model: nn.Module, shape: Sequence[int]) -> bool:
    """Return whether the checker distinguishes pictures of `shape` (N, H, W). Raw outputs and decisions must both differ."""
    raw, final = (build_adapter(model, outputs=outputs) for outputs in ('raw', 'final'))
    pictures = [picture((shape[0], raw.channels, *shape[1:]), number, raw) for number in (0, 1)]
    raw_outputs = [(raw.raw(image), image) for image in pictures]
    for adapter in (raw, final):
        specs = [spec.as_dict() for spec in adapter.specs]
        one, other = ({spec.name: value for spec, value in zip(adapter.specs, adapter.decide(*pair), strict=True)} for pair in raw_outputs)
        if little_change(specs, one, other, DEFAULT_TOLERANCE, adapter.num_classes, MARGIN):
            return False
    return True


def _scenes(adapter: Adapter, seed: int, size: Sequence[int], count: int) -> Tensor:
    """Draw scenes: half of them whole, half of them windows of scenes four times as wide, for other scales.

    A model that takes one size only gets scenes of that, and sees them a few at a time.
    """
    if not _takes(adapter, (IMAGE_SIDE, IMAGE_SIDE)):
        return picture((count, adapter.channels, *size), seed, adapter)
    whole = picture((count // 2, adapter.channels, IMAGE_SIDE, IMAGE_SIDE), seed, adapter)
    wide = picture((count // 2, adapter.channels, 4 * IMAGE_SIDE, 4 * IMAGE_SIDE), seed + 1, adapter)
    corner = 3 * IMAGE_SIDE // 2
    return torch.cat([whole, wide[..., corner:corner + IMAGE_SIDE, corner:corner + IMAGE_SIDE]])


def _larger(adapter: Adapter, seed: int, size: Sequence[int]) -> Callable[[], Any] | None:
    """Return what sends larger pictures than `size` through the model, if it takes them; None if `size` is large itself."""
    large = [int(LARGER * side) for side in size]
    if max(size) > LARGE:
        return None
    # Asked only where it is run: most models have no layer that is looked at.
    return lambda: adapter.whole(picture((2, adapter.channels, *large), seed, adapter)) if _takes(adapter, large) else None


def _run(adapter: Adapter, images: Tensor, in_second_stage: int) -> None:
    """Send the scenes through the model, a few at a time if they are large; only the first ones through its second stage if it has one."""
    too_many = in_second_stage < len(images)
    for part in images.split(max(1, len(images) * IMAGE_SIDE ** 2 // (images.shape[2] * images.shape[3]))):
        (adapter.raw if too_many else adapter.whole)(part)
    if too_many:
        adapter.whole(images[:in_second_stage])


def _proposals(model: nn.Module) -> int:
    """Return how many regions of a picture go through the second stage of a detector; 1 if it has none."""
    settings: Any = getattr(model, 'test_cfg', None) or {}
    return max(1, int((settings.get('rpn') or {}).get('max_per_img', 1))) if hasattr(model, 'roi_head') else 1


def _takes(adapter: Adapter, size: Sequence[int]) -> bool:
    try:
        adapter.raw(picture((1, adapter.channels, *size), 0, adapter))
    except (RuntimeError, AssertionError, ValueError):  # Any exception: at the size that the model is for, the error is raised again.
        return False
    return True
