"""Inputs: the traced one, and ones that the tracer never sees."""
from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .adapters import Adapter
from .errors import ConfigError, InputError

if TYPE_CHECKING:
    from mmengine.config import Config

DEFAULT_SHAPE = (512, 512)
MAX_DEFAULT_SIDE = 1024
# Sides that no stride divides, so that every rounding of a size shows.
ODD_SHAPE = (251, 333)


def traced_shape(cfg: Config, section: dict[str, Any]) -> tuple[int, int, int, int]:
    """(N, C, H, W) from the export section, else the size that the model was trained at, else 512 x 512; C is 3, or as many channels as
    the data_preprocessor has means.
    """
    channels = len((cfg.model.get('data_preprocessor') or {}).get('mean') or ()) or 3
    channels = 3 if channels == 1 else channels
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


def make_inputs(cfg: Config, section: dict[str, Any], adapter: Adapter, device: torch.device) -> dict[str, Tensor]:
    """Named images on `device`, the traced one first: another of its shape, another size, another aspect, a batch."""
    shape = traced_shape(cfg, section)
    shapes = {'traced': shape, 'same shape': shape, **other_shapes(shape, section)}
    return {name: picture(size, seed, adapter).to(device) for seed, (name, size) in enumerate(shapes.items())}


def other_shapes(shape: Sequence[int], section: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes that the tracer does not see; ``export.verify.shapes`` replaces them."""
    dynamic = section['inputs']['dynamic'] or ()
    wanted = section['verify']['shapes']
    batch = int(section['verify']['batch'])
    batch = batch if batch != shape[0] else shape[0] + 1
    found: dict[str, tuple[int, ...]] = {}
    if wanted is not None:
        sizes = [tuple(size)[-2:] for size in wanted]
        found = {f'{height}x{width}': (shape[0], shape[1], height, width) for height, width in sizes}
    elif 'height' in dynamic or 'width' in dynamic:
        other = ODD_SHAPE if tuple(shape[2:]) != ODD_SHAPE else (256, 352)
        for name, (height, width) in (('another size', other), ('another aspect', _another_aspect(shape))):
            found[name] = (shape[0], shape[1], height if 'height' in dynamic else shape[2], width if 'width' in dynamic else shape[3])
    if 'batch' in dynamic:
        size = next(iter(found.values()))[2:] if found else tuple(shape[2:])
        found[f'batch {batch}'] = (batch, shape[1], *size)
    _refuse_untried(shape, found, dynamic)
    return found


def _refuse_untried(shape: Sequence[int], others: dict[str, tuple[int, ...]], dynamic: Sequence[str]) -> None:
    """An axis that the manifest calls dynamic must be one that some input varies."""
    for name, axis in (('batch', 0), ('height', 2), ('width', 3)):
        if name in dynamic and all(other[axis] == shape[axis] for other in others.values()):
            raise ConfigError(f'export.inputs.dynamic has {name}, and no input of export.verify.shapes varies it from {shape[axis]}: add '
                              f'one, or leave {name} out of dynamic')


def _another_aspect(shape: Sequence[int]) -> tuple[int, int]:
    """Tall for a wide or square traced shape, wide for a tall one: longer than its long side, so that a table cut off there shows."""
    height, width = shape[2:]
    low, high = max(min(height, width) // 2 // 32 * 32, 64), max(max(height, width) * 5 // 4 // 32 * 32, 64)
    return (max(high, low + 32), low) if width >= height else (low, max(high, low + 32))


def _training_size(cfg: Config) -> tuple[int, int] | None:
    preprocessor = cfg.model.get('data_preprocessor') or {}
    size = preprocessor.get('size') or cfg.get('crop_size')
    if size is None and cfg.model.get('test_cfg', {}).get('mode') == 'slide':
        size = cfg.model.test_cfg.crop_size
    if size is None or max(size) > MAX_DEFAULT_SIDE:
        return None
    return int(size[0]), int(size[1])


def picture(shape: Sequence[int], seed: int, adapter: Adapter | None = None) -> Tensor:
    """A synthetic scene (N, C, H, W), normalised unless the graph does it: fields of four grains, filled and striped shapes, noise.

    Noise alone looks the same everywhere to a network, and smooth fields leave it undecided over wide areas; this has contours and
    texture as photographs have.
    """
    generator = torch.Generator().manual_seed(1000 + seed)
    count, channels, height, width = shape
    scene = torch.zeros(count, channels, height, width)
    for cells, gain in ((2, 0.9), (5, 0.6), (12, 0.35), (32, 0.2)):
        field = torch.randn(count, channels, cells, cells, generator=generator)
        scene += gain * F.interpolate(field, size=(height, width), mode='bicubic', align_corners=False)
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing='ij')
    for image in range(count):
        for _ in range(10):
            scene[image] = _shape(scene[image], x, y, generator)
    scene += 0.1 * torch.randn(scene.shape, generator=generator)
    return _normalized((scene * 58 + 116).clamp(0, 255), adapter)


def _shape(scene: Tensor, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    """Put one ellipse or bar, turned, plain or striped, over `scene` (C, H, W)."""
    centre_x, centre_y, turn, length, breadth, kind, stripes, period = torch.rand(8, generator=generator).tolist()
    cosine, sine = math.cos(2 * math.pi * turn), math.sin(2 * math.pi * turn)
    along = (cosine * (x - centre_x) + sine * (y - centre_y)) / (0.04 + 0.22 * length)
    across = (cosine * (y - centre_y) - sine * (x - centre_x)) / (0.04 + 0.22 * breadth)
    inside = along ** 2 + across ** 2 < 1 if kind < 0.5 else along.abs().maximum(across.abs()) < 1
    colour = 1.3 * torch.randn(scene.shape[0], 1, 1, generator=generator)
    texture = 0.5 * torch.sin(8 * (1 + 3 * period) * along) if stripes < 0.4 else torch.zeros_like(along)
    return torch.where(inside, colour + texture, scene)


def photograph(path: str, size: Sequence[int], adapter: Adapter) -> Tensor:
    """The picture file as (1, 3, H, W), stretched to `size`, read BGR as mmcv reads it."""
    import cv2
    content = None if not Path(path).is_file() else cv2.imread(str(path), cv2.IMREAD_COLOR)
    if content is None:
        raise InputError(f'--image {path}: no picture can be read there')
    scaled = cv2.resize(content, (int(size[1]), int(size[0])), interpolation=cv2.INTER_LINEAR)
    return _normalized(torch.from_numpy(scaled).permute(2, 0, 1)[None].float(), adapter)


def _normalized(pictures: Tensor, adapter: Adapter | None) -> Tensor:
    if adapter is None or adapter.preprocess.inside:
        return pictures.contiguous()
    return adapter.preprocess.normalize(pictures.to(adapter.preprocess.mean.device)).contiguous()
