"""Enlarge seeded projections of attention.

As initialisers draw them, each query gets nearly the mean of the picture.
"""
from __future__ import annotations

import torch
from torch import nn

# Of the projections of queries and keys, so that scores of attention grow by its square.
SHARPER = 6.0
# The same of DAB-DETR, whose queries are their boxes alone and differ less.
OF_ANCHORS = 20.0
# Linear layers of mmdet's ConditionalAttention that make queries and keys.
CONDITIONAL = ('qcontent_proj', 'qpos_proj', 'kcontent_proj', 'kpos_proj', 'qpos_sine_proj')


@torch.no_grad()
def sharpen_attention(model: nn.Module) -> None:
    """Enlarge what queries and keys are made by, in the detectors that decode queries.

    Without it the queries of one picture differ by a twentieth of what pictures differ by, and all have one class.
    """
    if not hasattr(model, 'forward_transformer'):
        return
    sharper = OF_ANCHORS if hasattr(getattr(model, 'decoder', None), 'ref_anchor_head') else SHARPER
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
            module.in_proj_weight[:2 * module.embed_dim] *= sharper
        for name, child in module.named_children():
            if isinstance(child, nn.Linear) and name in CONDITIONAL:
                child.weight *= sharper
