"""Draw synthetic scenes, and pictures without any content."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ..adapters import Adapter
from ..errors import InputError

# Pictures without content, by their grey value; ``blank`` is of the mean colour, so that it is zero once it is normalised. A branch on a
# mean or a deviation turns on one of them.
PLAIN: dict[str, float | None] = {'dark': 0.0, 'bright': 255.0, 'grey': 127.0, 'blank': None}


def scenes(shapes: Mapping[str, Sequence[int]], adapter: Adapter, device: torch.device) -> dict[str, Tensor]:
    """Return a scene of each shape (N, C, H, W), by name. Each has a seed of its own."""
    return {name: picture(shape, seed, adapter).to(device) for seed, (name, shape) in enumerate(shapes.items())}


def plain_picture(shape: Sequence[int], kind: str, adapter: Adapter) -> Tensor:
    """Return a picture (N, C, H, W) of `PLAIN`; the dark and the bright one have a little noise."""
    value = PLAIN[kind]
    if value is None:
        blank = torch.zeros(tuple(shape))
        return adapter.preprocess.undo(blank.to(adapter.preprocess.mean.device)).contiguous() if adapter.preprocess.inside else blank
    generator = torch.Generator().manual_seed(77)
    noise = 0.0 if kind == 'grey' else 3.0 * torch.randn(tuple(shape), generator=generator)
    return _normalized((torch.full(tuple(shape), value) + noise).round().clamp(0, 255), adapter)


def picture(shape: Sequence[int], seed: int, adapter: Adapter | None = None) -> Tensor:
    """Draw a synthetic scene (N, C, H, W), normalised unless the graph does it: noise fields, filled and striped shapes.

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
    """Read the picture file as (1, 3, H, W), resized to `size`. It is BGR, as mmcv reads it."""
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
