"""Choose the shapes of the inputs of a verification. The ranges that they span are computed here."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, InputError
from ..model.predictor import predictor_section
from .size_rules import SizeRules

if TYPE_CHECKING:
    from mmengine.config import Config

Shape = tuple[int, int, int, int]
AXIS = {'batch': 0, 'height': 2, 'width': 3}
DEFAULT_SHAPE = (512, 512)
MAX_DEFAULT_SIDE = 1024
# Sides that no stride divides, so that every rounding of a size shows.
ODD_SHAPE = (251, 333)
# Wider than 3:1, a ratio at which code of users has been seen to branch.
WIDE = 3.25
LARGER = 1.25
# A photograph at the scale of the test pipeline, which is run once in each format, may have this many times the traced pixels.
PHOTOGRAPH_SHARE, SMALL_ENOUGH = 4.2, 150_000
# Above the chunks of 4 and 8 that code of users goes through a batch in; fewer where so many of the smallest size have more pixels than
# that photograph may have, and than this.
BATCH, BATCH_PIXELS = 9, 1_000_000
TRACED, SAME = 'traced', 'same shape'


def traced_shape(cfg: Config, section: Mapping[str, Any], channels: int | None = None) -> Shape:
    """Return (N, C, H, W) from the export section. Without it, the size of the training, else 512 x 512.

    Args:
        channels: C, where the model is there to tell; else the number of the data_preprocessor's means, else the backbone's
            ``in_channels``, else 3.
    """
    channels = channels or input_channels(cfg)
    shape = section['inputs']['shape'] or _training_size(cfg) or DEFAULT_SHAPE
    shape = tuple(int(side) for side in shape)
    batch = section['inputs']['batch']
    if len(shape) == 2:
        shape = (1, channels, *shape)
    if batch is not None:
        shape = (int(batch), *shape[1:])
    if len(shape) != 4 or min(shape) < 1 or shape[1] != channels:
        raise InputError(f'the input shape is {shape}; (N, {channels}, H, W) or (H, W) was expected, no side below 1')
    return shape  # type: ignore[return-value]


def input_channels(cfg: Config) -> int:
    """Return how many channels the network takes; a single mean stands for all of them."""
    section = predictor_section(cfg)
    means = len((section.get('data_preprocessor') or {}).get('mean') or ())
    if means > 1:
        return means
    backbone = section.get('backbone') or {}
    return int(backbone.get('in_channels') or means or 3) if isinstance(backbone, dict) else 3


@dataclass(frozen=True)
class Plan:
    """Hold shapes by name, the traced one first; `dropped` says by name why an input was left out."""

    shapes: Mapping[str, Shape]
    rules: SizeRules
    dropped: Mapping[str, str] = field(default_factory=dict)

    def without(self, name: str, reason: str) -> Plan:
        shapes = {other: shape for other, shape in self.shapes.items() if other != name}
        return replace(self, shapes=shapes, dropped={**self.dropped, name: reason})


def plan_shapes(shape: Shape, section: Mapping[str, Any], rules: SizeRules, pictures: Sequence[Sequence[int]] = ()) -> Plan:
    """Choose the shapes of the inputs that the tracer does not see; ``export.verify.shapes`` replaces the sizes.

    By default: another input of the traced shape; the corners of the box of sizes, so tall, wide (over 3:1), small in a batch above the
    usual chunks, and large; and odd sides.

    Args:
        pictures: (H, W) of the photographs that are checked too; they lie in the box.
    """
    dynamic = tuple(section['inputs']['dynamic'] or ())
    sizes = _sizes(shape, section, rules, dynamic, pictures)
    shapes: dict[str, Shape] = {TRACED: shape, SAME: shape}
    dropped: dict[str, str] = {}
    shapes.update({name: (shape[0], shape[1], *_pair(size)) for name, size in sizes.items()})
    if 'batch' in dynamic:
        small = min([tuple(shape[2:]), *sizes.values()], key=lambda size: size[0] * size[1])
        shapes.pop('small', None)
        batch = _batch(section['verify']['batch'], shape, small)
        shapes[f'batch {batch}'] = (batch, shape[1], *_pair(small))
        if section['verify']['batch'] is None and batch < BATCH:
            dropped[f'batch {BATCH}'] = f'too large for the time of a check, {batch} are tried; export.verify.batch={BATCH} has it checked'
    plan = Plan(shapes, rules, dropped)
    _refuse_untried(plan, section, dynamic)
    return plan


def _batch(count: int | None, shape: Shape, small: Sequence[int]) -> int:
    """Return how many inputs of the smallest size are checked at once: as many as `count`, and never as many as are traced."""
    if count is None:
        pixels = max(PHOTOGRAPH_SHARE * shape[2] * shape[3], BATCH_PIXELS)
        count = min(BATCH, max(2, int(pixels // (small[0] * small[1]))))
    return int(count) if int(count) != shape[0] else shape[0] + 1


def _sizes(shape: Shape, section: Mapping[str, Any], rules: SizeRules, dynamic: Sequence[str],
           pictures: Sequence[Sequence[int]]) -> dict[str, tuple[int, int]]:
    height, width = shape[2:]
    listed = section['verify']['shapes']
    if listed is not None:
        sizes = {f'{size[-2]}x{size[-1]}': (int(size[-2]), int(size[-1])) for size in listed}
        return {**sizes, **_corners([(height, width), *sizes.values(), *map(_pair, pictures)], rules)}
    if rules.fixed or not {'height', 'width'} & set(dynamic):
        return {}
    low = rules.up(64)
    high = [rules.up(max(LARGER * height, *(picture[0] for picture in pictures), WIDE * low, 0)),
            rules.up(max(LARGER * width, *(picture[1] for picture in pictures), WIDE * low, 0))]
    odd = tuple(rules.multiple_of * (side // rules.multiple_of | 1) for side in ODD_SHAPE)
    if odd[0] >= high[0] or odd[1] >= high[1] or odd == (height, width):
        odd = tuple(rules.multiple_of * (int(low + share * (limit - low)) // rules.multiple_of | 1)
                    for limit, share in zip(high, (0.5, 0.7), strict=True))
    sizes = {'wide': (low, high[1]), 'tall': (high[0], low), 'another size': (max(odd[0], low), max(odd[1], low)), 'small': (low, low),
             'large': (high[0], high[1])}
    sizes = {name: (size[0] if 'height' in dynamic else height, size[1] if 'width' in dynamic else width) for name, size in sizes.items()}
    taken = {tuple(picture) for picture in pictures} | {(height, width)}
    return {name: size for number, (name, size) in enumerate(sizes.items())
            if size not in taken and size not in list(sizes.values())[:number]}


def _pair(size: Sequence[int]) -> tuple[int, int]:
    return int(size[0]), int(size[1])


def _corners(sizes: Sequence[tuple[int, int]], rules: SizeRules) -> dict[str, tuple[int, int]]:
    """Return the corners of the box around `sizes` that are not among them."""
    heights, widths = sorted(size[0] for size in sizes), sorted(size[1] for size in sizes)
    corners = [(height, width) for height in (heights[0], heights[-1]) for width in (widths[0], widths[-1])]
    return {f'corner {height}x{width}': (height, width) for height, width in corners
            if (height, width) not in sizes and not rules.fixed and rules.takes(height, width)}


def ranges_of(shapes: Sequence[Sequence[int]], dynamic: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return by open axis the smallest and the largest size that was tried."""
    return {name: (min(int(shape[AXIS[name]]) for shape in shapes), max(int(shape[AXIS[name]]) for shape in shapes)) for name in dynamic}


def open_axes(dynamic: Sequence[str], rules: SizeRules) -> tuple[str, ...]:
    """Return those of the `dynamic` axes that the model leaves open."""
    return tuple(name for name in dynamic if name == 'batch' or not rules.fixed)


def within_budget(shape: Sequence[int], size: Sequence[int]) -> bool:
    """Return whether a photograph of `size` fits into the budget: about twice the time of five inputs of the traced size."""
    return int(size[0]) * int(size[1]) <= max(PHOTOGRAPH_SHARE * int(shape[2]) * int(shape[3]), SMALL_ENOUGH)


def _refuse_untried(plan: Plan, section: Mapping[str, Any], dynamic: Sequence[str]) -> None:
    """Raise if no input varies an axis that the manifest calls dynamic."""
    shape = plan.shapes[TRACED]
    for name in dynamic:
        varied = any(other[AXIS[name]] != shape[AXIS[name]] for other in plan.shapes.values())
        if not varied and not (plan.rules.fixed and name != 'batch'):
            raise ConfigError(f'export.inputs.dynamic has {name}, and no input of export.verify.shapes varies it from '
                              f'{shape[AXIS[name]]}: add one, or leave {name} out of dynamic')


def _training_size(cfg: Config) -> tuple[int, int] | None:
    section = predictor_section(cfg)
    size = (section.get('data_preprocessor') or {}).get('size') or cfg.get('crop_size')
    if size is None and section.get('test_cfg', {}).get('mode') == 'slide':
        size = section.test_cfg.crop_size
    if size is None or max(size) > MAX_DEFAULT_SIDE:
        return None
    return int(size[0]), int(size[1])
