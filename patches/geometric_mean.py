"""Replace the geometric mean of two sigmoids, which is an autograd Function in mmdet."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class SigmoidGeometricMean(Patch):
    """Compute the scores of TOOD, and of RTMDet with objectness, by the operations of the Function's forward.

    A trace records the Function as a call of Python, which a TorchScript file cannot hold. Only its gradient differs from that of the
    operations.

    Paper: TOOD, ICCV 2021. Source: mmdet/models/utils/misc.py, ``SigmoidGeometricMean``.
    """

    targets = ('mmdet.models.utils.misc.sigmoid_geometric_mean',)
    upstream = 'mmdet 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return geometric_mean


def geometric_mean(first: Tensor, second: Tensor) -> Tensor:
    """Return the square root of the product of both sigmoids."""
    return (first.sigmoid() * second.sigmoid()).sqrt()
