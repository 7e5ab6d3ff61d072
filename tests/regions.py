"""Draw maps of several levels, and regions to cut out of them."""
from __future__ import annotations

import torch
from torch import Tensor

STRIDES = (4, 8, 16, 32)


def pyramid(seed: int, height: int, width: int, images: int, regions: int, channels: int = 6) -> tuple[list[Tensor], Tensor, Tensor]:
    """Draw maps, regions of any shape and the level of each; some regions have no area, some end beyond the picture."""
    generator = torch.Generator().manual_seed(seed)
    maps = [torch.randn(images, channels, height // stride, width // stride, generator=generator) for stride in STRIDES]
    side = torch.tensor([width, height], dtype=torch.float32)
    centre, size = torch.rand(regions, 2, generator=generator) * side, torch.rand(regions, 2, generator=generator) ** 3 * side
    corners = torch.cat([centre - size / 2, centre + size / 2], dim=1)
    corners[0], corners[1, 3] = 0, corners[1, 1]
    image = torch.randint(images, (regions, 1), generator=generator)
    return maps, torch.cat([image, corners], dim=1), torch.arange(regions) * 7 % len(STRIDES)
