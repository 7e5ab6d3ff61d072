"""Initialise every parameter repeatably, without downloads."""
from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def unset_is_nan() -> Iterator[None]:
    """Fill ``torch.empty`` with NaN inside the block, to find parameters that a model leaves unset."""
    before, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)


def initialise(model: nn.Module, generator: torch.Generator) -> None:
    """Initialise `model` in place; from the global random state; `generator` sets what no initialiser sets."""
    _forget_pretrained(model)
    before = _mark_kernels(model)
    _start_over(model)
    with _without_a_line_for_each_parameter():
        _init_weights(model)
    for parameter in model.parameters():
        if parameter in before and bool(parameter.isnan().all()):
            parameter.copy_(before[parameter])
        if parameter.is_floating_point() and bool(parameter.isnan().any()):
            parameter.copy_(0.02 * torch.randn(parameter.shape, generator=generator))


def restore_built(model: nn.Module, built: dict[str, torch.Tensor]) -> None:
    """Return `model` to the values it was built with. mmengine runs ``init_weights`` once; it will run again."""
    model.load_state_dict(built)
    for module in model.modules():
        if hasattr(module, '_is_init'):
            module._is_init = False  # type: ignore[assignment]


def _mark_kernels(model: nn.Module) -> dict[nn.Parameter, torch.Tensor]:
    """Fill convolution kernels with NaN, so that one stands out that no initialiser sets; returns the constant ones' values.

    TridentConv's is memory that nothing was written to (``torch.Tensor(*shape)``, which no mode of torch fills). A model calibrated on
    what lies there has channels that are nearly constant, and multiplies rounding errors by 300 in each block.
    """
    constant = {}
    for parameter in model.parameters():
        if parameter.dim() == 4 and parameter.requires_grad and parameter.is_floating_point():
            if bool((parameter == parameter.flatten()[0]).all()):
                constant[parameter] = parameter.clone()
            parameter.fill_(float('nan'))
    return constant


def _forget_pretrained(model: nn.Module) -> None:
    for module in model.modules():
        init_cfg = getattr(module, 'init_cfg', None)
        # SAN's says Pretrained_Part, and PVT's has no type.
        if isinstance(init_cfg, dict) and ('checkpoint' in init_cfg or str(init_cfg.get('type')).startswith('Pretrained')):
            module.init_cfg = None  # type: ignore[assignment]
        if isinstance(getattr(module, 'pretrained', None), str):
            module.pretrained = None  # type: ignore[assignment]


def _start_over(model: nn.Module) -> None:
    """Draw what layers drew when they were built, so that the seed alone decides."""
    for module in model.modules():
        for reset in ('reset_parameters', '_reset_parameters'):
            if callable(getattr(module, reset, None)):
                getattr(module, reset)()


def _init_weights(module: nn.Module) -> None:
    """Call ``init_weights`` of a module, or of its parts where it cannot be called.

    SAN's recogniser calls an ``init_weights`` that its base class does not have, and needs an argument in its own.
    """
    if _takes_no_argument(module.init_weights):
        try:
            module.init_weights()  # type: ignore[operator]
            return
        except AttributeError as exc:
            if exc.name != 'init_weights':
                raise
    for child in module.children():
        if hasattr(child, 'init_weights'):
            _init_weights(child)


def _takes_no_argument(method: Any) -> bool:
    try:
        inspect.signature(method).bind()
    except TypeError:
        return False
    return True


@contextmanager
def _without_a_line_for_each_parameter() -> Iterator[None]:
    """Silence mmengine, which logs every parameter that init_weights touches."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)
