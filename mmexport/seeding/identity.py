"""Seed decoder layers so that queries which start from zeros (DETR, MaskFormer) get distinct values.

Their embedding is added to queries and keys alone, never to a value.

Three decoder layers carry it. The first attends, in each head, to the highest or the lowest end of one direction of the memory, as
the query's sign code says. The second takes the mean over the queries off, so that the sign alone remains, and clips it to one size.
The third has a unit for each code, which adds a random vector: what a learnt `query_feat` is to Mask2Former.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

SHARPNESS = 4.0
# A sign counts in full from this share of the least clear code of the calibration on.
CLEAR = 0.4
CODE_SIZE = 1.0
IDENTITY_SIZE = 3.0
# What a query attended to also reaches the other channels, so that queries depend on the image in different ways.
CONTENT = 0.15


def lacks_identity(head: Any) -> bool:
    layers = list(getattr(head.transformer_decoder, 'layers', ()))
    return not hasattr(head, 'query_feat') and hasattr(head, 'query_embed') and len(layers) >= 3 and all(
        hasattr(layer, name) for layer in layers for name in ('self_attn', 'cross_attn', 'ffn', 'norms'))


@torch.no_grad()
def give_identity(head: Any, run: Callable[[], Any], generator: torch.Generator) -> None:
    """Set the first three layers during one run, each from what reaches it."""
    layers = head.transformer_decoder.layers
    heads = layers[0].cross_attn.num_heads
    embedding = head.query_embed.weight
    codes = _sign_codes(len(embedding), heads, generator)
    for layer in layers[:3]:
        _keep_free(layer, 2 * heads)
    embedding[:, :heads] = codes
    _centre(layers[1].self_attn.attn, 2 * heads)
    hooks = [
        head.transformer_decoder.register_forward_pre_hook(
            lambda module, args, inputs: _attend(layers[0].cross_attn.attn, inputs['key'], inputs['key_pos'], generator),
            with_kwargs=True),
        layers[1].ffn.register_forward_pre_hook(lambda module, args: _clip(module, args[0], codes)),
        layers[2].ffn.register_forward_pre_hook(lambda module, args: _name(module, args[0], codes, generator))]
    run()
    for hook in hooks:
        hook.remove()


def _sign_codes(queries: int, bits: int, generator: torch.Generator) -> Tensor:
    """Return codes of -1 and 1 (Q, bits), in pairs of opposites; any two differ in two bits if there are enough."""
    half = 2 ** (bits - 1)
    signs = 1.0 - 2 * (torch.arange(half)[:, None] >> torch.arange(bits) & 1)
    order = (torch.rand(half, generator=generator) + (signs.prod(1) < 0)).argsort()
    chosen = signs[order[torch.arange((queries + 1) // 2) % half]]
    return torch.stack([chosen, -chosen], dim=1).flatten(0, 1)[:queries]


def _keep_free(layer: Any, channels: int) -> None:
    """Keep branches from writing into the first `channels`, which the norms pass unchanged."""
    for linear in (layer.self_attn.attn.out_proj, layer.cross_attn.attn.out_proj, _linears(layer.ffn)[-1]):
        linear.weight[:channels] = 0
        linear.bias[:channels] = 0
    for norm in layer.norms:
        norm.weight[:channels] = 1
        norm.bias[:channels] = 0


def _attend(attention: nn.MultiheadAttention, key: Tensor, position: Tensor, generator: torch.Generator) -> None:
    """Set head h: logit = code * content, value = content, along a direction of the memory that varies in every image."""
    heads, dims = attention.num_heads, attention.head_dim
    direction = _varied_directions(key, position, heads)
    query_rows, key_rows, value_rows = (torch.arange(heads) * dims + part * attention.embed_dim for part in range(3))
    weight, bias = attention.in_proj_weight, attention.in_proj_bias
    weight[:2 * attention.embed_dim] = 0
    bias[:2 * attention.embed_dim] = 0
    weight[query_rows, torch.arange(heads)] = 1
    weight[key_rows] = SHARPNESS * dims ** 0.5 * direction
    weight[value_rows] = direction
    bias[value_rows] = -(direction @ key.mean((0, 1)))
    _write(attention.out_proj.weight, query_rows, 0.5)
    content_rows = attention.out_proj.weight[2 * heads:]
    content_rows[:, query_rows] = CONTENT * torch.randn(len(content_rows), heads, generator=generator)


def _varied_directions(key: Tensor, position: Tensor, count: int) -> Tensor:
    """Return directions (count, C) in which contents differ most within an image; unit spread within images."""
    within = (key - key.mean(1, keepdim=True)).flatten(0, 1).double()
    other = (position - position.mean(1, keepdim=True)).flatten(0, 1).double()
    signal, noise = within.T @ within / len(within), other.T @ other / len(other)
    noise += 0.1 * signal.trace() / len(signal) * torch.eye(len(signal), dtype=signal.dtype)
    lower = torch.linalg.cholesky(noise)
    _, vectors = torch.linalg.eigh(torch.linalg.solve(lower, torch.linalg.solve(lower, signal).T))
    best = torch.linalg.solve(lower.T, vectors[:, -count:])
    return (best / (within @ best).std(0)).T.float()


def _centre(attention: nn.MultiheadAttention, channels: int) -> None:
    """Set uniform attention that subtracts the mean over the queries from the first `channels`."""
    size = attention.embed_dim
    attention.in_proj_weight[:2 * size] = 0
    attention.in_proj_bias[:2 * size] = 0
    attention.in_proj_weight[2 * size:] = torch.eye(size)
    attention.in_proj_bias[2 * size:] = 0
    attention.out_proj.weight[:channels] = -torch.eye(size)[:channels]


def _clip(ffn: nn.Module, rows: Tensor, codes: Tensor) -> None:
    """Set clip(x) = relu(x + 1) - relu(x - 1) - 1 on the code channels."""
    first, last = _linears(ffn)
    heads = codes.shape[1]
    read = _read(rows.shape[-1], heads)
    clear = CLEAR * float(((rows @ read.T) * codes).flatten().quantile(0.01).clamp_min(1e-3))
    # The input itself goes: its size differs from image to image, and x = relu(x) - relu(-x).
    first.weight[:4 * heads] = torch.cat([read / clear, read / clear, read, -read])
    first.bias[:4 * heads] = torch.tensor([1.0, -1.0, 0.0, 0.0]).repeat_interleave(heads)
    columns = torch.arange(heads)
    for index, value in enumerate((CODE_SIZE, -CODE_SIZE, -1.0, 1.0)):
        _write(last.weight, columns + index * heads, value)
    last.bias[:2 * heads] = torch.tensor([-CODE_SIZE, CODE_SIZE]).repeat_interleave(heads)


def _name(ffn: nn.Module, rows: Tensor, codes: Tensor, generator: torch.Generator) -> None:
    """Set one hidden unit for each query, which adds the query's random vector."""
    first, last = _linears(ffn)
    read = codes[:len(first.weight)] @ _read(rows.shape[-1], codes.shape[1])
    products = (rows[:, :len(read)] * read).sum(-1)
    level = float(products.median())
    first.weight[:len(read)] = read / level * codes.shape[1] / 4
    first.bias[:len(read)] = 1 - codes.shape[1] / 4
    last.weight[:, :len(read)] = IDENTITY_SIZE * torch.randn(len(last.weight), len(read), generator=generator)


def _read(size: int, heads: int) -> Tensor:
    eye = torch.eye(size)
    return (eye[:heads] - eye[heads:2 * heads]) / 2


def _write(weight: Tensor, columns: Tensor, value: float) -> None:
    """Let column h reach the code channels h, and H + h with the other sign: the norms' mean stays as it is."""
    rows = torch.arange(len(columns))
    weight[:, columns] = 0
    weight[rows, columns], weight[rows + len(rows), columns] = value, -value


def _linears(ffn: nn.Module) -> list[nn.Linear]:
    return [module for module in ffn.modules() if isinstance(module, nn.Linear)]
