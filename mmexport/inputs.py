"""Inputs: the traced one, and ones that the tracer never sees."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .adapters import Adapter
from .errors import InputError

if TYPE_CHECKING:
    from mmengine.config import Config

DEFAULT_SHAPE = (512, 512)
MAX_DEFAULT_SIDE = 1024
# Sides that no stride divides, so that every rounding of a size shows.
ODD_SHAPE = (250, 333)


def traced_shape(cfg: Config, section: dict[str, Any]) -> tuple[int, int, int, int]:
    """(N, 3, H, W) from the export section, else the size that the model was trained at, else 512 x 512."""
    shape = section['inputs']['shape'] or _training_size(cfg) or DEFAULT_SHAPE
    shape = tuple(int(side) for side in shape)
    if len(shape) == 2:
        shape = (int(section['inputs']['batch']), 3, *shape)
    if len(shape) != 4 or min(shape) < 1 or shape[1] != 3:
        raise InputError(f'the input shape is {shape}; (N, 3, H, W) or (H, W) was expected')
    return shape  # type: ignore[return-value]


def make_inputs(cfg: Config, section: dict[str, Any], adapter: Adapter, device: torch.device) -> dict[str, Tensor]:
    """Named images on `device`, the traced one first: another of its shape, another size, another aspect, a batch, the photograph."""
    shape = traced_shape(cfg, section)
    shapes = {'traced': shape, 'same shape': shape, **other_shapes(shape, section)}
    images = {name: picture(size, seed, adapter).to(device) for seed, (name, size) in enumerate(shapes.items())}
    if section['inputs']['image']:
        images['photograph'] = photograph(section['inputs']['image'], shape[2:], adapter).to(device)
    return images


def other_shapes(shape: Sequence[int], section: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes that the tracer does not see; ``export.verify.shapes`` replaces them."""
    dynamic = section['inputs']['dynamic'] or ()
    wanted = section['verify']['shapes']
    batch = int(section['verify']['batch'])
    batch = batch if batch != shape[0] else shape[0] + 1
    found: dict[str, tuple[int, ...]] = {}
    if wanted is not None:
        sizes = [tuple(size)[-2:] for size in wanted]
        found = {f'{height}x{width}': (shape[0], 3, height, width) for height, width in sizes}
    elif 'height' in dynamic and 'width' in dynamic:
        other = ODD_SHAPE if tuple(shape[2:]) != ODD_SHAPE else (256, 352)
        found['another size'] = (shape[0], 3, *other)
        found['another aspect'] = (shape[0], 3, *_another_aspect(shape))
    if 'batch' in dynamic:
        size = next(iter(found.values()))[2:] if found else tuple(shape[2:])
        found[f'batch {batch}'] = (batch, 3, *size)
    return found


def _another_aspect(shape: Sequence[int]) -> tuple[int, int]:
    """Tall for a wide or square traced shape, wide for a tall one, at about half its area."""
    height, width = shape[2:]
    low, high = max(min(height, width) * 3 // 4 // 32 * 32, 64), max(height, width) // 32 * 32 or 64
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
    """A synthetic scene (N, 3, H, W), normalised unless the graph does it: smooth fields, filled shapes, grain.

    Noise alone looks the same everywhere to a network, so its outputs hardly differ between two inputs.
    """
    generator = torch.Generator().manual_seed(1000 + seed)
    count, _, height, width = shape
    fields = torch.rand(count, 3, 5, 6, generator=generator)
    scene = F.interpolate(fields, size=(height, width), mode='bicubic', align_corners=False)
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing='ij')
    for image in range(count):
        for _ in range(12):
            cx, cy, rx, ry, kind = torch.rand(5, generator=generator).tolist()
            rx, ry = 0.04 + 0.22 * rx, 0.04 + 0.22 * ry
            inside = ((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2 < 1 if kind < 0.5 else ((x - cx).abs() < rx) & ((y - cy).abs() < ry)
            colour = torch.rand(3, generator=generator)
            scene[image] = torch.where(inside, 0.8 * colour[:, None, None] + 0.2 * scene[image], scene[image])
    scene = scene + 0.03 * torch.randn(scene.shape, generator=generator)
    return _normalized(scene.clamp(0, 1) * 255, adapter)


def photograph(path: str, size: Sequence[int], adapter: Adapter) -> Tensor:
    """The picture file as (1, 3, H, W), stretched to `size`, read BGR as mmcv reads it."""
    import cv2
    content = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if content is None:
        raise InputError(f'--image {path}: no picture can be read there')
    scaled = cv2.resize(content, (int(size[1]), int(size[0])), interpolation=cv2.INTER_LINEAR)
    return _normalized(torch.from_numpy(scaled).permute(2, 0, 1)[None].float(), adapter)


def _normalized(pictures: Tensor, adapter: Adapter | None) -> Tensor:
    if adapter is None or adapter.preprocess.inside:
        return pictures.contiguous()
    return adapter.preprocess.normalize(pictures.to(adapter.preprocess.mean.device)).contiguous()
