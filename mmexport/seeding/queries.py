"""Seed mask-classification heads: solve the readouts so that confident queries hold regions of their own.

Works on any head with `cls_embed`, `mask_embed` and a `pixel_decoder.mask_feature` (Mask2Former, MaskFormer; mmdet's and mmseg's).
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .calibrate import eigen
from .identity import give_identity, lacks_identity
from .regions import choose_regions

REGIONS = 24
CLASS_PEAK = 10.0
# The same for 95% of all pairs of images, where all queries tell much the same about an image.
PAIR_VARIES_BY = 0.03
RIDGE = 1e-3
# Small residual branches let queries keep their identity from layer to layer, so that a readout can tell them apart. Attention
# among queries stays large: all of them get the same image features, of which one query's flipped mask cell is a small part.
SELF, CROSS, FEED = 0.6, 0.1, 0.2
EARLY_LAYERS = 0.1
ROUNDS = 4
SHAPES_OF_CHANGE = 8
CHANGE_FLOOR = 1e-2


def query_heads(model: nn.Module) -> Iterator[nn.Module]:
    for module in model.modules():
        if (isinstance(getattr(module, 'cls_embed', None), nn.Linear) and hasattr(module, 'mask_embed')
                and hasattr(getattr(module, 'pixel_decoder', None), 'mask_feature')):
            yield module


@torch.no_grad()
def fit_queries(model: nn.Module, head: Any, run: Callable[[], Any], generator: torch.Generator, varies_by: float) -> None:
    """Solve ridge regressions for `cls_embed` and the last layer of `mask_embed`. They are repeated until the attention masks settle.

    Args:
        varies_by: a query's class logits change by at least this share of their scale between two images, in 95% of the queries.
    """
    last = [module for module in head.mask_embed.modules() if isinstance(module, nn.Linear)][-1]
    goals: tuple[Tensor, Tensor, Tensor] | None = None
    with _backbone_once(model, run):
        anonymous = lacks_identity(head)
        if anonymous:
            give_identity(head, run, generator)
        # An anonymous query has no identity yet in the early layers, so nothing can be read from them.
        early = 0.0 if anonymous else EARLY_LAYERS
        for _ in range(ROUNDS):
            decoded, hidden, feature = _record(head, last, run)
            if goals is None:
                goals = _goals(head, decoded[-1], feature, generator)
            classes, mixing, masks = goals
            weight = torch.cat([torch.full((layer[..., 0].numel(),), 1.0 if index == len(decoded) - 1 else early)
                                for index, layer in enumerate(decoded)])
            targets = torch.cat([(classes + _changes(layer) @ mixing).flatten(0, 1) for layer in decoded])
            _solve_into(head.cls_embed, torch.cat([layer.flatten(0, 1) for layer in decoded]), targets, weight)
            mixing.mul_(_too_little(head.cls_embed(decoded[-1]), anonymous, varies_by))
            targets = torch.cat([masks.expand(len(layer), -1, -1).flatten(0, 1) for layer in hidden])
            _solve_into(last, torch.cat([layer.flatten(0, 1) for layer in hidden]), targets, weight)


def damp_branches(head: Any) -> None:
    """Scale down the decoder's branches, before the readouts are solved."""
    for name, layer in head.transformer_decoder.named_modules():
        if isinstance(layer, nn.MultiheadAttention):
            layer.out_proj.weight.mul_(CROSS if 'cross_attn' in name else SELF)
        elif hasattr(layer, 'feedforward_channels') and hasattr(layer, 'layers'):
            [module for module in layer.modules() if isinstance(module, nn.Linear)][-1].weight.mul_(FEED)


class _backbone_once:  # noqa: N801, a context manager that reads as a phrase
    """Cache ``extract_feat``: the backbone does not change while readouts are solved."""

    def __init__(self, model: Any, run: Callable[[], Any]) -> None:
        self.model, self.run = model, run

    def __enter__(self) -> None:
        features: list[Any] = []
        original = self.model.extract_feat

        def answer(*args: Any) -> Any:
            if not features:
                features.append(original(*args))
            return features[0]

        self.model.extract_feat = answer

    def __exit__(self, *exc: object) -> None:
        del self.model.extract_feat


def _record(head: Any, last: nn.Linear, run: Callable[[], Any]) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Return inputs of `cls_embed` and of the last mask layer for each decoder layer, and the mask feature. Each input is (N, Q, C)."""
    recorded: dict[str, list[Tensor]] = {'cls': [], 'mask': [], 'feature': []}
    hooks = [head.cls_embed.register_forward_pre_hook(lambda module, args: recorded['cls'].append(args[0])),
             last.register_forward_pre_hook(lambda module, args: recorded['mask'].append(args[0])),
             head.pixel_decoder.register_forward_hook(lambda module, args, out: recorded['feature'].append(out[0]))]
    run()
    for hook in hooks:
        hook.remove()
    decoded, hidden = ([layer.clone() for batch in recorded[key] for layer in (batch if batch.dim() == 4 else batch[None])]
                       for key in ('cls', 'mask'))
    return decoded, hidden, recorded['feature'][-1]


def _goals(head: Any, decoded: Tensor, feature: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return class logits (Q, C + 1), their variation with the image, and mask embeddings (Q, c)."""
    order = _most_distinct(decoded)
    masks, bias, active = choose_regions(feature, order, REGIONS, generator)
    head.pixel_decoder.mask_feature.bias.add_(bias)
    queries, channels = decoded.shape[1], head.cls_embed.out_features
    classes = 0.5 * torch.randn(queries, channels, generator=generator)
    classes[:, -1] += 4 + 4 * torch.rand(queries, generator=generator)
    classes[active, -1] = 0
    class_of = torch.arange(len(active)) * max(1, (channels - 1) // len(active)) % (channels - 1)
    classes[active, class_of] += CLASS_PEAK * (0.9 + 0.2 * torch.rand(len(active), generator=generator))
    mixing = torch.randn(SHAPES_OF_CHANGE, channels, generator=generator) / SHAPES_OF_CHANGE ** 0.5
    return classes, mixing, masks


def _most_distinct(decoded: Tensor) -> Tensor:
    """Return query ids, those that an image changes least relative to their identity first."""
    mean = decoded.mean(0)
    _, values, vectors = eigen((decoded - mean).flatten(0, 1))
    return ((mean - mean.mean(0)) @ (vectors / (values + 1e-4 * values[0]).sqrt())).norm(dim=1).argsort(descending=True)


def _changes(decoded: Tensor) -> Tensor:
    """Return what the image changes in each query, whitened (N, Q, 8). The axes are its main directions."""
    delta = decoded - decoded.mean(0)
    _, values, vectors = eigen(delta.flatten(0, 1))
    return delta @ (vectors[:, :SHAPES_OF_CHANGE] / (values[:SHAPES_OF_CHANGE] + CHANGE_FLOOR * values[0]).sqrt())


def _too_little(logits: Tensor, every_pair: bool, varies_by: float) -> float:
    """Return the factor for the change between images (logits: (N, Q, C + 1) of N images)."""
    if every_pair:
        first, second = torch.triu_indices(len(logits), len(logits), 1)
        change = (logits[first] - logits[second]).pow(2).mean(dim=2).sqrt() / logits.abs().max()
        return min(max(PAIR_VARIES_BY / float(change.quantile(0.05, dim=1).quantile(0.05)), 0.5), 4.0)
    change = (logits - logits.roll(1, dims=0)).pow(2).mean(dim=2).sqrt() / logits.abs().max()
    return min(max(varies_by / float(change.quantile(0.05)), 0.5), 4.0)


def _solve_into(layer: nn.Linear, rows: Tensor, targets: Tensor, weight: Tensor) -> None:
    """Solve a weighted ridge regression with a bias, in float64."""
    x, y, share = rows.double(), targets.double(), (weight / weight.sum()).double()[:, None]
    mean_x, mean_y = (share * x).sum(0), (share * y).sum(0)
    covariance = (x - mean_x).T @ (share * (x - mean_x))
    covariance += RIDGE * covariance.trace() / len(covariance) * torch.eye(len(covariance), dtype=covariance.dtype)
    solved = torch.linalg.solve(covariance, (x - mean_x).T @ (share * (y - mean_y))).T
    layer.weight.copy_(solved.float())
    layer.bias.copy_((mean_y - solved @ mean_x).float())


