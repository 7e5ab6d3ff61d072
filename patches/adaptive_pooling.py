"""Replace torch's adaptive pooling, for formats that have no such operator at open sizes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mmexport.ops.adaptive_pooling import adaptive_avg_pool2d, adaptive_max_pool2d
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class AdaptivePooling(Patch):
    """Pool any size to a grid of any size. Some formats have no such operator.

    PSPNet's and UPerNet's pyramids pool to 1, 2, 3 and 6 cells. Of a size that is left open ``torch.onnx.export`` makes a graph that
    ONNX Runtime refuses at other sizes, and OpenVINO pools SAN's masks to the example's; see `mmexport.ops.adaptive_pooling`.
    TorchScript keeps torch's own operators.
    """

    targets = ('torch.nn.functional.adaptive_avg_pool2d', 'torch.nn.functional.adaptive_max_pool2d')
    upstream = 'torch 2.1.2 2.4.1 2.6.0 2.8.0 2.13.0 2.14.1'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        if target.endswith('adaptive_max_pool2d'):
            def largest(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
                return adaptive_max_pool2d(original, input, output_size, return_indices)
            return largest

        def pool(input: Tensor, output_size: Any) -> Tensor:
            return adaptive_avg_pool2d(original, input, output_size)
        return pool
