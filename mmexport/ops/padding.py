"""Tell where the pictures of a padded batch end."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


class PaddedSize(Sequence[int]):
    """Hold the size of one picture of a padded batch. It is read from its tensor only if it is asked for.

    Upstream makes masks by it, picture by picture, and asks first whether there is padding; a patch takes `sizes`, of the whole batch.

    Attributes:
        sizes: height and width of each picture (N, 2).
        outer: height and width of the input.
    """

    def __init__(self, sizes: Tensor, outer: Sequence[Any], picture: int | None) -> None:
        self.sizes, self.outer, self._picture = sizes, outer, picture

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[int]:
        # Plain numbers: which pictures have padding is no decision on a size, see `mmexport.branches`.
        return (int.__pos__(side) for side in (self.outer if self._picture is None else self._own()))

    def _own(self) -> list[int]:
        return [int(side) for side in self.sizes[self._picture].tolist()]

    def __deepcopy__(self, memo: Any) -> PaddedSize:
        return self


def sizes_in(metas: Sequence[dict[str, Any]]) -> Tensor | None:
    """Return height and width (N, 2) of pictures with padding; None where all fill their input."""
    shapes = [meta['img_shape'] for meta in metas]
    if isinstance(shapes[0], PaddedSize):
        return shapes[0].sizes
    # An adapter's own sizes are one object, and symbolic perhaps: comparing would fix them.
    if all(shape is meta['batch_input_shape'] or tuple(shape) == tuple(meta['batch_input_shape'])
           for shape, meta in zip(shapes, metas, strict=True)):
        return None
    return torch.tensor([[int(side) for side in shape[:2]] for shape in shapes])


def inside(sizes: Tensor, height: Any, width: Any) -> Tensor:
    """Return which pixels (N, height, width) lie within the height and the width (N, 2) of their picture."""
    rows, columns = (torch.arange(side, device=sizes.device) for side in (height, width))
    return (rows < sizes[:, :1])[:, :, None] & (columns < sizes[:, 1:])[:, None]


def padding_masks(samples: Sequence[Any], feats: Sequence[Tensor]) -> list[Tensor | None]:
    """Return which places of each level are padding (N, h, w); None where pictures fill their input.

    A place is what upstream's resize of the picture's own mask gives it, by the nearest pixel.
    """
    metas = [sample.metainfo for sample in samples]
    sizes = sizes_in(metas) if metas else None
    if sizes is None:
        return [None] * len(feats)
    sizes, outer = sizes.to(feats[0].device), metas[0]['batch_input_shape']
    beyond = ~inside(sizes, *getattr(outer, 'outer', outer))[:, None]
    return [F.interpolate(beyond.to(feat), size=feat.shape[-2:])[:, 0].to(torch.bool) for feat in feats]
