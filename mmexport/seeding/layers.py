"""Find the layers whose outputs seeding sets, and what their outputs should be."""
from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from .constants import NORMS, OPEN

LOGIT_STD = 3.0
CLASS_LAYERS = ('conv_seg', 'fc_seg', 'cls_seg', 'mask_norm')
# Of a dense head that detects: the mean of the logits, which leaves some per cent of them over a threshold of 0.05; the spread of deltas.
LOGIT_MEAN, DELTA_STD = -9.0, 0.5
# What the coder of Faster R-CNN multiplies the deltas of a centre by.
CODER_STD = 0.1
# Of the tags of corners: two that are nearer than 0.5 belong together.
TAG_STD = 0.25
# Of a head on queries, of which there are few.
QUERY_MEAN = -6.0


class Spread(NamedTuple):
    """Hold what the outputs of a layer should be on the scenes.

    Attributes:
        last_call: the layer is shared, and its last call gives the result, as in a decoder.
        bounded: the largest output is bounded too, see `calibrate`.
        drawn: the weights are drawn anew, for channels that differ; else each channel of the layer is multiplied and shifted.
    """

    std: float = LOGIT_STD
    mean: float = 0.0
    last_call: bool = False
    bounded: bool = False
    drawn: bool = True


def class_layers(model: nn.Module) -> set[nn.Module]:
    """Return the layers whose output channels are a head's classes."""
    layers: set[nn.Module] = set()
    for head in model.modules():
        if not hasattr(head, 'num_classes'):
            continue
        counts = [getattr(head, key, None) for key in ('num_classes', 'cls_out_channels', 'out_channels')]
        for name, module in head.named_modules():
            channels = getattr(module, 'out_channels', getattr(module, 'out_features', None))
            if isinstance(module, nn.LayerNorm):
                channels = module.normalized_shape[-1]
            if (isinstance(module, (nn.Conv2d, nn.Linear, nn.LayerNorm)) and channels is not None and channels in counts
                    and name.rsplit('.', 1)[-1].startswith(CLASS_LAYERS)):
                layers.add(module)
    return layers


def detecting_layers(model: nn.Module) -> dict[nn.Module, Spread]:
    """Return the last layers of heads that detect, with the spread of their outputs."""
    layers: dict[nn.Module, Spread] = {}
    heads: list[Any] = list(model.modules())
    for head in heads:
        if hasattr(head, 'num_attrib') and hasattr(head, 'convs_pred'):
            # YOLOv3 has one layer for all; its boxes grow by the exponent of what these channels get.
            layers.update((layer, Spread(DELTA_STD)) for layer in head.convs_pred)
            continue
        if hasattr(head, 'fc_cls') and isinstance(getattr(head, 'fc_reg', None), nn.Linear):
            # A head on regions: the class that means none is among its classes. That of DAB-DETR, an MLP, moves its queries little.
            layers.update({head.fc_cls: Spread(), head.fc_reg: Spread(DELTA_STD * _less(head))})
        if hasattr(head, 'grid_points') and isinstance(getattr(head, 'deconv2', None), nn.ConvTranspose2d):
            # A point is where its map is largest, and the maps of new weights are flat.
            layers[head.deconv2] = Spread()
        if hasattr(head, 'tl_heat') and hasattr(head, 'tl_emb'):
            # The head of CornerNet: maps of corners, their tags and their offsets.
            for names, spread in ((('tl_heat', 'br_heat'), Spread(mean=LOGIT_MEAN, bounded=True)), (('tl_emb', 'br_emb'), Spread(TAG_STD)),
                                  (('tl_off', 'br_off'), Spread(DELTA_STD))):
                layers.update((level[-1].conv, spread) for name in names for level in getattr(head, name))
        if hasattr(head, 'conv_logits'):
            layers[head.conv_logits] = Spread()
        if not hasattr(head, 'predict_by_feat') or not hasattr(head, 'cls_out_channels'):
            continue
        # Heads on queries have none, and those of SSD another number for each level.
        counts = getattr(head, 'num_base_priors', 0)
        priors = set(counts) if isinstance(counts, (list, tuple)) else {int(counts)}
        deltas = 4 * (int(getattr(head, 'reg_max', 0)) + 1)
        classes, boxes = {each * head.cls_out_channels for each in priors}, {each * deltas for each in priors}
        for name, module in head.named_modules():
            if isinstance(module, nn.Linear) and 'cls' in name and module.out_features == head.cls_out_channels:
                layers[module] = Spread(mean=QUERY_MEAN, last_call=True)
            elif isinstance(module, nn.Conv2d) and 'cls' in name and module.out_channels in classes:
                layers[module] = Spread(mean=LOGIT_MEAN, bounded=True)
            elif isinstance(module, nn.Conv2d) and ('reg' in name or 'box' in name) and module.out_channels in boxes:
                layers[module] = Spread(DELTA_STD)
    return layers


def layers_without_norm(model: nn.Module) -> dict[nn.Module, Spread]:
    """Return the convolutions of a backbone and a neck without norms, as SSD's VGG. Their channels are spread, too.

    After twenty of them the features of all pictures are nearly the same, and the last layers multiply what differs.
    """
    parts: list[nn.Module] = [part for name in ('backbone', 'neck') if isinstance(part := getattr(model, name, None), nn.Module)]
    if not parts or any(isinstance(module, NORMS) for part in parts for module in part.modules()):
        return {}
    spread = Spread(std=1.0, mean=sum(OPEN) / 2, drawn=False)
    return {module: spread for part in parts for module in part.modules() if isinstance(module, nn.Conv2d)}


def _less(head: Any) -> float:
    """Return by what the deltas of a head on regions are smaller than others, so that they move boxes as those do.

    Sparse R-CNN's coder multiplies by 0.5 and 1.0 what Faster R-CNN's multiplies by 0.1 and 0.2: six stages would make boxes of 2,800
    pixels in a picture of 208, where rounding of 1e-6 moves a corner by one pixel and the logits by 7% of their scale.
    """
    stds = getattr(getattr(head, 'bbox_coder', None), 'stds', None)
    return min(1.0, CODER_STD / float(stds[0])) if stds is not None and len(stds) else 1.0
