"""Calibrate norm statistics and class layers from one batch of scenes, layer by layer."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from .attention import calibrated_attention
from .layers import Spread, class_layers, detecting_layers, layers_without_norm

# Without it a nearly constant channel, and its rounding error, would be multiplied by about 1000.
VARIANCE_FLOOR = 1e-2
EIGENVALUE_FLOOR = 1e-2
# The largest logit that a class has on the scenes.
LARGEST = 4.0
# So few cells tell nothing of the deviation of one channel: all channels are taken together. What was fitted to three cells of a level
# without norms gave logits of 100,000 in other pictures.
FEW = 32
# On pictures that were not calibrated on: the sigmoid of a logit over 16 is 1.0 in float32, and rows that tie have no order.
SATURATED = 12.0
# Logits of larger pictures beyond this come from maps that had one or two cells of the scenes, whose norms say nothing of larger maps.
FAR_OFF = 2 * SATURATED
# How much more than the difference between a head's queries that between pictures counts, so that directions in which a picture differs
# from others in all of its queries are left out. Else one class wins all of them.
BETWEEN = 5.0


@torch.no_grad()
def calibrate(model: nn.Module, run: Callable[[], Any], generator: torch.Generator, unseen: Callable[[], Any] | None = None,
              larger: Callable[[], Any] | None = None) -> None:
    """Set each BatchNorm to the batch that `run` sends through it. The logits of each class layer are spread too.

    Args:
        unseen: sends other pictures through the model. A level of which the scenes have few cells (RTMDet-Ins at stride 32: 256) is
            fitted to them, and other pictures had logits of 50 where the scenes had 4.
        larger: sends larger ones. Where their logits are far off (a head with norms of its own at stride 128: 377), they join the scenes.
    """
    _calibrate(model, run, generator, unseen)
    if larger and _largest([layer for layer, spread in detecting_layers(model).items() if spread.bounded], larger) > FAR_OFF:
        _calibrate(model, lambda: (run(), larger()), generator, unseen)


def _largest(layers: Sequence[nn.Module], run: Callable[[], Any]) -> float:
    """Return the largest value that `layers` give; 0 if there are none."""
    values = [0.0]
    hooks = [layer.register_forward_hook(lambda _, __, output: values.append(float(output.max()))) for layer in layers]
    if layers:
        run()
    for hook in hooks:
        hook.remove()
    return max(values)


def _calibrate(model: nn.Module, run: Callable[[], Any], generator: torch.Generator, unseen: Callable[[], Any] | None) -> None:
    calls: dict[nn.Module, int] = {}
    layers = {**layers_without_norm(model), **dict.fromkeys(class_layers(model), Spread()), **detecting_layers(model)}

    def before(module: nn.Module, args: tuple[Any, ...]) -> None:
        calls[module] = calls.get(module, 0) + 1
        if isinstance(module, _BatchNorm):
            _set_statistics(module, args[0], 1 / calls[module])
        elif calls[module] == 1 or layers[module].last_call:
            _spread(module, args[0], generator, layers[module])

    hooks = [module.register_forward_pre_hook(before) for module in model.modules()
             if (isinstance(module, _BatchNorm) and module.track_running_stats) or module in layers]
    with calibrated_attention(model):
        run()
    for hook in hooks:
        hook.remove()
    bounded = {layer: spread for layer, spread in layers.items() if spread.bounded}
    _adjust(bounded, run, _bounded)
    if unseen:
        _adjust(bounded, unseen, lambda logits, spread: _bounded(logits, spread) if float(logits.max()) > SATURATED else (1.0, 0.0))
        _adjust({layer: spread for layer, spread in layers.items() if spread.last_call}, unseen, _spread_out)


def _adjust(layers: Mapping[nn.Module, Spread], run: Callable[[], Any], change: Callable[[Tensor, Spread], tuple[Any, Any]]) -> None:
    """Multiply each channel of logits and add to it, by what `change` returns for the channels of all calls (C, values)."""
    channels: dict[nn.Module, list[Tensor]] = {layer: [] for layer in layers}

    def note(layer: nn.Module, _: Any, output: Tensor) -> None:
        of_maps = isinstance(layer, nn.Conv2d)
        channels[layer].append(output.transpose(0, 1).flatten(1) if of_maps else _of_last_call(output).flatten(0, -2).T)

    hooks = [layer.register_forward_hook(note) for layer in layers]
    if layers:
        run()
    for hook in hooks:
        hook.remove()
    for layer in (layer for layer in layers if isinstance(layer, (nn.Conv2d, nn.Linear)) and channels[layer]):
        factor, shift = change(torch.cat(channels[layer], dim=1), layers[layer])
        layer.weight.mul_(torch.as_tensor(factor).view(-1, *[1] * (layer.weight.dim() - 1)))
        if layer.bias is not None:
            layer.bias.copy_(layer.bias * factor + shift)


def _bounded(logits: Tensor, spread: Spread) -> tuple[Tensor, Tensor]:
    """Return what gives channels the mean of `spread`, and `LARGEST` as their largest value.

    A head is shared by levels whose features differ; scores of 1.0 by the hundred would have no order, and one class would win all.
    """
    logits = logits.flatten()[None] if logits.shape[1] < FEW else logits
    mean = logits.mean(1)
    factor = (LARGEST - spread.mean) / (logits.amax(1) - mean).clamp_min(1e-6)
    return factor, spread.mean - mean * factor


def _spread_out(logits: Tensor, spread: Spread) -> tuple[Tensor, Tensor]:
    """Return what gives channels the mean and the deviation of `spread`: else the best rows of a picture would be of few classes."""
    factor = spread.std / logits.std(1).clamp_min(1e-6)
    return factor, spread.mean - logits.mean(1) * factor


def _of_last_call(values: Tensor) -> Tensor:
    """Return what the last of a decoder's layers gives, where all are together; it makes the result."""
    return values[-1] if values.dim() == 4 else values


def _set_statistics(norm: _BatchNorm, batch: Tensor, share: float) -> None:
    dims = [0, *range(2, batch.dim())]
    mean, variance = batch.mean(dims), batch.var(dims, unbiased=False)
    variance = variance.clamp_min(VARIANCE_FLOOR * float(variance.mean()) + 1e-6)
    assert norm.running_mean is not None and norm.running_var is not None
    norm.running_mean.lerp_(mean, share)
    norm.running_var.lerp_(variance, share)


def _spread(layer: nn.Module, batch: Tensor, generator: torch.Generator, target: Spread) -> None:
    """Project floored-whitened inputs at random; logits get the same mean and spread in every class."""
    if isinstance(layer, nn.LayerNorm):
        values = F.layer_norm(batch, layer.normalized_shape, eps=layer.eps).flatten(0, -2)
        layer.weight.copy_(target.std / values.std(0).clamp_min(0.1))
        layer.bias.copy_(-values.mean(0) * layer.weight)
        return
    if isinstance(layer, nn.ConvTranspose2d):
        layer.weight.mul_(target.std / layer(batch).std().clamp_min(1e-6))
        return
    assert isinstance(layer, (nn.Conv2d, nn.Conv1d, nn.Linear))
    if isinstance(layer, nn.Linear):
        batch = _of_last_call(batch)
    rows = (batch if isinstance(layer, nn.Linear) else batch.transpose(1, -1)).flatten(0, -2)
    if target.drawn and layer.weight[0].numel() == rows.shape[1]:
        rows = rows[::max(1, len(rows) // 50000)]
        mean, values, vectors = eigen(_emphasised(batch) if target.last_call and batch.dim() == 3 else rows)
        white = vectors / (values + EIGENVALUE_FLOOR * values[0]).sqrt()
        projection = torch.randn(layer.weight.shape[0], len(values), generator=generator) @ white.T
        projection *= (target.std / ((rows - mean) @ projection.T).std(0).clamp_min(1e-6))[:, None]
        layer.weight.copy_(projection.view_as(layer.weight))
        shift = -(mean @ projection.T)
    else:
        logits = layer(batch)
        alike = (0, 1, 2, 3) if logits[:, 0].numel() < FEW else (0, 2, 3)
        layer.weight.mul_((target.std / logits.std(alike).clamp_min(1e-6)).view(-1, 1, 1, 1))
        bias = 0 if layer.bias is None else layer.bias
        shift = bias - layer(batch).mean(alike)
    if layer.bias is not None:
        layer.bias.copy_(shift + target.mean)


def _emphasised(batch: Tensor) -> Tensor:
    """Return the queries (N, Q, C) of pictures as rows, the pictures `BETWEEN` times as far apart."""
    pictures = batch.mean(1, keepdim=True)
    overall = pictures.mean(0, keepdim=True)
    return (batch - pictures + overall + BETWEEN * (pictures - overall)).flatten(0, 1)


def eigen(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, eigenvalues of the covariance in descending order, and their vectors as columns."""
    mean = rows.mean(0)
    centred = (rows - mean).double()
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(rows))
    # The sign of a vector is the library's choice, and differs from processor to processor.
    vectors = vectors * vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True)).sign()
    return mean, values.flip(0).clamp_min(0).float(), vectors.flip(1).float()
