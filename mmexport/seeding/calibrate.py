"""Calibrate norm statistics and class layers from one batch of scenes, layer by layer."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

# A channel that hardly varies would otherwise be blown up a thousandfold, rounding included.
VARIANCE_FLOOR = 1e-2
EIGENVALUE_FLOOR = 1e-2
LOGIT_STD = 3.0
CLASS_LAYERS = ('conv_seg', 'fc_seg', 'cls_seg', 'mask_norm')


@torch.no_grad()
def calibrate(model: nn.Module, run: Callable[[], Any], generator: torch.Generator) -> None:
    """Set each BatchNorm to the batch that `run` sends through it. The logits of each class layer are spread too."""
    calls: dict[nn.Module, int] = {}
    layers = class_layers(model)

    def before(module: nn.Module, args: tuple[Any, ...]) -> None:
        calls[module] = calls.get(module, 0) + 1
        if isinstance(module, _BatchNorm):
            _set_statistics(module, args[0], 1 / calls[module])
        elif calls[module] == 1:
            _spread(module, args[0], generator)

    hooks = [module.register_forward_pre_hook(before) for module in model.modules()
             if (isinstance(module, _BatchNorm) and module.track_running_stats) or module in layers]
    run()
    for hook in hooks:
        hook.remove()


def class_layers(model: nn.Module) -> set[nn.Module]:
    """Return the layers whose output channels are a head's classes."""
    layers: set[nn.Module] = set()
    for head in model.modules():
        if not hasattr(head, 'num_classes'):
            continue
        counts = {getattr(head, key, None) for key in ('num_classes', 'cls_out_channels', 'out_channels')} - {None}
        for name, module in head.named_modules():
            channels = getattr(module, 'out_channels', getattr(module, 'out_features', None))
            if isinstance(module, nn.LayerNorm):
                channels = module.normalized_shape[-1]
            if (channels in counts and isinstance(module, (nn.Conv2d, nn.Linear, nn.LayerNorm))
                    and name.rsplit('.', 1)[-1].startswith(CLASS_LAYERS)):
                layers.add(module)
    return layers


def _set_statistics(norm: _BatchNorm, batch: Tensor, share: float) -> None:
    dims = [0, *range(2, batch.dim())]
    mean, variance = batch.mean(dims), batch.var(dims, unbiased=False)
    variance = variance.clamp_min(VARIANCE_FLOOR * float(variance.mean()) + 1e-6)
    assert norm.running_mean is not None and norm.running_var is not None
    norm.running_mean.lerp_(mean, share)
    norm.running_var.lerp_(variance, share)


def _spread(layer: nn.Module, batch: Tensor, generator: torch.Generator) -> None:
    """Project floored-whitened inputs at random; logits get mean 0 and the same spread in every class."""
    if isinstance(layer, nn.LayerNorm):
        values = F.layer_norm(batch, layer.normalized_shape, eps=layer.eps).flatten(0, -2)
        layer.weight.copy_(LOGIT_STD / values.std(0).clamp_min(0.1))
        layer.bias.copy_(-values.mean(0) * layer.weight)
        return
    assert isinstance(layer, (nn.Conv2d, nn.Conv1d, nn.Linear))
    rows = (batch if isinstance(layer, nn.Linear) else batch.transpose(1, -1)).flatten(0, -2)
    if layer.weight[0].numel() == rows.shape[1]:
        rows = rows[::max(1, len(rows) // 50000)]
        mean, values, vectors = eigen(rows)
        white = vectors / (values + EIGENVALUE_FLOOR * values[0]).sqrt()
        projection = torch.randn(layer.weight.shape[0], len(values), generator=generator) @ white.T
        projection *= (LOGIT_STD / ((rows - mean) @ projection.T).std(0).clamp_min(1e-6))[:, None]
        layer.weight.copy_(projection.view_as(layer.weight))
        shift = -(mean @ projection.T)
    else:
        logits = layer(batch)
        layer.weight.mul_((LOGIT_STD / logits.std((0, 2, 3)).clamp_min(1e-6)).view(-1, 1, 1, 1))
        bias = 0 if layer.bias is None else layer.bias
        shift = bias - layer(batch).mean((0, 2, 3))
    if layer.bias is not None:
        layer.bias.copy_(shift)


def eigen(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, eigenvalues of the covariance in descending order, and their vectors as columns."""
    mean = rows.mean(0)
    centred = (rows - mean).double()
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(rows))
    # The sign of a vector is the library's choice, and differs from processor to processor.
    vectors = vectors * vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True)).sign()
    return mean, values.flip(0).clamp_min(0).float(), vectors.flip(1).float()
