"""Replace the decoder call of mmdet's DINO: no comparison of the batch with the number of queries."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class DinoDecoder(Patch):
    """Call the decoder without ``if len(query) == self.num_queries``, which fixes the batch.

    The branch adds a label embedding times 0.0 to a state, so that distributed training has a gradient for it: it changes no value.

    Source: mmdet/models/detectors/dino.py (``DINO.forward_decoder``).
    """

    targets = ('mmdet.models.detectors.dino.DINO.forward_decoder',)
    upstream = 'mmdet 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return forward_decoder


def forward_decoder(model: Any, query: Any, memory: Any, memory_mask: Any, reference_points: Any, spatial_shapes: Any,
                    level_start_index: Any, valid_ratios: Any, dn_mask: Any = None, **others: Any) -> dict[str, Any]:
    states, references = model.decoder(
        query=query, value=memory, key_padding_mask=memory_mask, self_attn_mask=dn_mask, reference_points=reference_points,
        spatial_shapes=spatial_shapes, level_start_index=level_start_index, valid_ratios=valid_ratios,
        reg_branches=model.bbox_head.reg_branches, **others)
    return dict(hidden_states=states, references=list(references))
