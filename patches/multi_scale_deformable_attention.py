"""Replace mmcv's multi-scale deformable attention by pure PyTorch."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from mmexport.errors import PatchError
from mmexport.ops import deformable_attention
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class MultiScaleDeformableAttention(Patch):
    """Sample in pure PyTorch: a tracer keeps the zeros, which mmcv's CUDA kernel fills later without a record.

    ``MultiScaleDeformableAttnFunction`` allocates its output with ``new_zeros`` and fills it in C++, which no tracer sees: the graph
    returns zeros and runs without a complaint. The replacement also takes level shapes as a list of sizes (see
    `PixelDecoderShapes`), so that no size of the traced picture is in the graph. Places and offsets are float32 under autocast too:
    at half precision a place on a 128-pixel level is off by a twentieth of a pixel.

    Args:
        sampling: ``'bag'``, ``'grid'`` or ``'gather'``, see `mmexport.ops.deformable_attention`; None leaves it to the backend.
    """

    targets = ('mmcv.ops.multi_scale_deform_attn.MultiScaleDeformableAttention.forward',)
    upstream = 'mmcv 2.0.1 2.1.0'

    def __init__(self, sampling: str | None = None) -> None:
        if sampling is not None and sampling not in deformable_attention.SAMPLINGS:
            raise PatchError(f'sampling={sampling!r}; there are {", ".join(deformable_attention.SAMPLINGS)}')
        self.sample = deformable_attention.sampled if sampling is None else deformable_attention.SAMPLINGS[sampling]

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        sample = self.sample

        def forward(module: Any, *args: Any, **kwargs: Any) -> Tensor:
            return _forward(sample, module, *args, **kwargs)

        return forward


def _forward(sample: Callable[..., Tensor], module: Any, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
             identity: Tensor | None = None, query_pos: Tensor | None = None, key_padding_mask: Tensor | None = None,
             reference_points: Tensor | None = None, spatial_shapes: Any = None, level_start_index: Tensor | None = None,
             residual: Tensor | None = None, **kwargs: Any) -> Tensor:
    identity = residual if identity is None else identity
    identity = query if identity is None else identity
    value = query if value is None else value
    if query_pos is not None:
        query = query + query_pos
    if not module.batch_first:
        query, value = query.permute(1, 0, 2), value.permute(1, 0, 2)
    assert reference_points is not None
    heads, levels, points = module.num_heads, module.num_levels, module.num_points
    value = module.value_proj(value)
    if key_padding_mask is not None:
        value = value.masked_fill(key_padding_mask[..., None], 0.0)
    offsets = module.sampling_offsets(query).float().unflatten(-1, (heads, levels, points, 2))
    weights = module.attention_weights(query).unflatten(-1, (heads, levels * points)).softmax(-1).unflatten(-1, (levels, points))
    output = module.output_proj(sample(value.unflatten(-1, (heads, -1)), level_shapes(spatial_shapes), offsets, weights,
                                       reference_points.float()))
    output = output if module.batch_first else output.permute(1, 0, 2)
    return module.dropout(output) + identity  # type: ignore[no-any-return]


def level_shapes(spatial_shapes: Any) -> Sequence[tuple[Any, Any]]:
    """Return a list of (height, width). It is made from such a list, or from upstream's tensor (levels, 2)."""
    if not isinstance(spatial_shapes, Tensor):
        return list(spatial_shapes)
    return [(spatial_shapes[level, 0], spatial_shapes[level, 1]) for level in range(spatial_shapes.shape[0])]
