"""Replace the geometric mean of two sigmoids, which is an autograd Function in mmdet."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class SigmoidGeometricMean(Patch):
    """Compute the scores of TOOD, and of RTMDet with objectness, by tensor operations.

    A trace records the Function as a call of Python, which a TorchScript file cannot hold. The logarithms are added up: the sigmoid of ONNX
    Runtime 1.31.1 is off by up to 2e-7, of which the square root makes 4e-4.

    Paper: TOOD, ICCV 2021. Source: mmdet/models/utils/misc.py, ``SigmoidGeometricMean``.
    """

    targets = ('mmdet.models.utils.misc.sigmoid_geometric_mean',)
    upstream = 'mmdet 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return geometric_mean


def geometric_mean(first: Tensor, second: Tensor) -> Tensor:
    """Return the square root of the product of both sigmoids."""
    return (-0.5 * (F.softplus(-first) + F.softplus(-second))).exp()
