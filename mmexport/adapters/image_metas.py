"""Make the metas of images, which OpenMMLab's heads take sizes from."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..ops.padding import PaddedSize


class Size(tuple):  # type: ignore[type-arg]
    """Hold a size that deepcopy leaves shared: a symbolic size refers to the whole environment of its export."""

    def __deepcopy__(self, memo: Any) -> Size:
        return self


class Metas(list):  # type: ignore[type-arg]
    """Hold the metas of a batch: how many there are is a size of the input, which a model may branch on."""

    counts_a_size = True


def image_metas(image: Tensor) -> list[dict[str, Any]]:
    """Return metas without padding; one for the whole batch if its size is open."""
    size, batch = Size(image.shape[2:]), image.shape[0]
    return Metas(dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size, padding_size=[0, 0, 0, 0])
                 for _ in range(1 if isinstance(batch, torch.SymInt) else int(batch)))


def padded_metas(image: Tensor, sizes: Tensor) -> list[dict[str, Any]]:
    """Return metas of pictures that are smaller than their input, by height and width (N, 2)."""
    outer = PaddedSize(sizes, image.shape[2:], None)
    return Metas({**meta, 'batch_input_shape': outer, 'pad_shape': outer,
                  **dict.fromkeys(('img_shape', 'ori_shape'), PaddedSize(sizes, image.shape[2:], index))}
                 for index, meta in enumerate(image_metas(image)))
