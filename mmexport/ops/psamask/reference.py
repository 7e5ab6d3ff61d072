"""Compute mmcv's kernel of point-wise spatial attention, from its definition.

Paper: PSANet, Zhao et al., ECCV 2018. Signature as in mmcv/ops/csrc/pytorch/pybind.cpp.
"""
from __future__ import annotations

from torch import Tensor

COLLECT, DISTRIBUTE = range(2)


def psamask_forward(feature: Tensor, output: Tensor, psa_type: int, num_: int, h_feature: int, w_feature: int, h_mask: int, w_mask: int,
                    half_h_mask: int, half_w_mask: int) -> None:
    """Write the weights that each place has for each other into `output`; those out of its neighbourhood stay as they are.

    Args:
        feature: (N, h_mask * w_mask, H, W), weights of the neighbours around each place.
        output: (N, H * W, H, W), in place. `COLLECT` has the other place in the channel, `DISTRIBUTE` the place itself.
    """
    around = feature.view(num_, h_mask, w_mask, h_feature, w_feature)
    spread = output.view(num_, h_feature, w_feature, h_feature, w_feature)
    for y in range(h_feature):
        rows, mask_rows = _overlap(y, half_h_mask, h_mask, h_feature)
        for x in range(w_feature):
            columns, mask_columns = _overlap(x, half_w_mask, w_mask, w_feature)
            weights = around[:, mask_rows, mask_columns, y, x]
            if psa_type == COLLECT:
                spread[:, rows, columns, y, x] = weights
            else:
                spread[:, y, x, rows, columns] = weights


def _overlap(place: int, half: int, mask: int, size: int) -> tuple[slice, slice]:
    """Return what of the map the neighbourhood of `place` covers along one axis, and which part of the neighbourhood that is."""
    first, last = max(place - half, 0), min(place - half + mask, size)
    return slice(first, last), slice(first - place + half, last - place + half)


COMPARED = 'compiled mmcv 2.1.0'
KERNELS = {'psamask_forward': psamask_forward}
