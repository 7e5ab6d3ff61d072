"""Replace how mmdet's DDQ chooses distinct queries, picture by picture."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmexport.ops import distinct as choice
from mmexport.ops.ranking import rows_at
from mmexport.ops.sigmoid import sigmoid
from mmexport.patching import Environment, Patch
from mmexport.registry import PATCHES

DECODER = 'mmdet.models.layers.transformer.ddq_detr_layers.DDQTransformerDecoder'


@PATCHES.register_module()
class DdqQueries(Patch):
    """Suppress similar queries of the whole batch at once. It happens before the decoder and in each of its layers.

    Upstream calls ``batched_nms`` for each picture, with as many boxes as are distinct, and asks ``len(query)`` for the batch: a trace
    keeps the counts of its own pictures. Here all queries take part, and those that are not distinct are marked.

    Sources: mmdet/models/detectors/ddq_detr.py and mmdet/models/layers/transformer/ddq_detr_layers.py.
    """

    targets = ('mmdet.models.detectors.ddq_detr.DDQDETR.pre_decoder', f'{DECODER}.select_distinct_queries', f'{DECODER}.forward')
    upstream = 'mmdet 3.3.0'

    def check(self, env: Environment) -> str | None:
        version = str(env.versions.get('mmdet', ''))
        return f'mmdet {version} has no DDQ' if version.startswith(('3.0.', '3.1.')) else None

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        replacements: dict[str, Callable[..., Any]] = {'pre_decoder': pre_decoder, 'select_distinct_queries': select_distinct}
        return replacements.get(target.rsplit('.', 1)[1], forward)


def pre_decoder(model: Any, memory: Tensor, memory_mask: Tensor | None, spatial_shapes: Any, batch_data_samples: Any = None) -> Any:
    places, proposals = model.gen_encoder_output_proposals(memory, memory_mask, spatial_shapes)
    layer, limit = model.decoder.num_layers, model.num_queries
    scores = sigmoid(model.bbox_head.cls_branches[layer](places).max(-1)[0])
    unactivated = model.bbox_head.reg_branches[layer](places) + proposals
    candidates = torch.ones_like(scores, dtype=torch.bool)
    index, count = choice.distinct(unactivated.sigmoid(), scores, candidates, model.cache_dict['dqs_cfg'], limit)
    # Where fewer are distinct, upstream fills up with zeros, too.
    there = (torch.arange(limit, device=index.device) < count[:, None])[..., None]
    query, reference = (torch.where(there, rows_at(values, index), values.new_zeros(()))
                        for values in (model.query_map(memory), unactivated))
    model.cache_dict['dis_query_info'] = [0, limit]
    return dict(query=query, memory=memory, reference_points=reference.sigmoid(), dn_mask=None), {}


def select_distinct(decoder: Any, reference_points: Tensor, query: Tensor, self_attn_mask: Tensor, layer_index: int) -> Tensor:
    """Return the mask (N * heads, Q, Q) of attention between queries neither of which is distinct."""
    heads, count = decoder.cache_dict['num_heads'], query.shape[1]
    # Upstream reads it off the first row, which is all open if the first query is distinct.
    candidates = ~self_attn_mask.unflatten(0, (-1, heads))[:, 0, 0]
    scores = sigmoid(decoder.cache_dict['cls_branches'][layer_index](query)).max(-1).values
    kept = choice.marked(*choice.distinct(reference_points, scores, candidates, decoder.cache_dict['dqs_cfg'], count), count)
    mask = ~(kept[:, None] | kept[:, :, None])[:, None].expand(-1, heads, -1, -1).flatten(0, 1)
    decoder.cache_dict['distinct_query_mask'].append(~mask)
    return mask


def forward(decoder: Any, query: Tensor, value: Tensor, key_padding_mask: Tensor | None, self_attn_mask: Any, reference_points: Tensor,
            spatial_shapes: Any, level_start_index: Any, valid_ratios: Tensor, reg_branches: Any, **kwargs: Any) -> Any:
    from mmdet.models.layers.transformer.utils import coordinate_to_encoding, inverse_sigmoid
    states, references = [], [reference_points]
    decoder.cache_dict['distinct_query_mask'] = []
    pairs = torch.zeros_like(query[:, :, 0], dtype=torch.bool)
    mask = (pairs[:, None] | pairs[..., None])[:, None].expand(-1, decoder.cache_dict['num_heads'], -1, -1).flatten(0, 1)
    for number, layer in enumerate(decoder.layers):
        scaled = reference_points[:, :, None] * torch.cat([valid_ratios, valid_ratios], -1)[:, None]
        position = decoder.ref_point_head(coordinate_to_encoding(scaled[:, :, 0], num_feats=decoder.embed_dims // 2))
        query = layer(query, query_pos=position, value=value, key_padding_mask=key_padding_mask, self_attn_mask=mask,
                      spatial_shapes=spatial_shapes, level_start_index=level_start_index, valid_ratios=valid_ratios,
                      reference_points=scaled, **kwargs)
        reference_points = (reg_branches[number](query) + inverse_sigmoid(reference_points, eps=1e-3)).sigmoid()
        if number < len(decoder.layers) - 1:
            mask = decoder.select_distinct_queries(reference_points, query, mask, number)
        states.append(decoder.norm(query))
        references.append(reference_points)
    return (torch.stack(states), torch.stack(references)) if decoder.return_intermediate else (query, reference_points)
