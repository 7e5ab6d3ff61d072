"""Hold the shapes that are known without torch's shape functions against those functions."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport.branches import known_shapes
from mmexport.branches.recorder import record_sizes
from mmexport.branches.shapes_only import ShapesOnly

X, TOKENS, GAIN, WIDE = (torch.zeros(shape, device='meta') for shape in ((2, 6, 8, 10), (2, 5, 12), (6,), (12,)))
CASES: dict[str, Callable[[], Any]] = {
    'bilinear': lambda: F.interpolate(X, size=(16, 7), mode='bilinear'),
    'bilinear by a factor': lambda: F.interpolate(X, scale_factor=2, mode='bilinear', align_corners=True),
    'bicubic': lambda: F.interpolate(X, size=(3, 30), mode='bicubic'),
    'bilinear of channels last': lambda: F.interpolate(X.to(memory_format=torch.channels_last), size=(16, 7), mode='bilinear'),
    'an empty map': lambda: F.interpolate(X[:, :, :0], size=(4, 7), mode='bilinear'),
    'bilinear of a transposed': lambda: F.interpolate(X.transpose(2, 3), size=(16, 7), mode='bilinear'),
    'bilinear of a cut': lambda: F.interpolate(X[:, :, 1:-1, ::2], size=(16, 7), mode='bilinear'),
    'bilinear of one channel': lambda: F.interpolate(X[:, :1], size=(16, 7), mode='bilinear'),
    'bilinear of a column': lambda: F.interpolate(X[..., :1], size=(16, 7), mode='bilinear'),
    'half': lambda: F.interpolate(X.half(), size=(16, 7), mode='bilinear'),
    'sampled': lambda: F.grid_sample(X, torch.zeros(2, 3, 4, 2, device='meta'), align_corners=False),
    'sampled from a transposed': lambda: F.grid_sample(X.transpose(2, 3), torch.zeros(2, 3, 4, 2, device='meta'), align_corners=False),
    'sampled from channels last': lambda: F.grid_sample(X.to(memory_format=torch.channels_last),
                                                        torch.zeros(2, 3, 4, 2, device='meta'), align_corners=False),
    'linear': lambda: F.linear(TOKENS, torch.zeros(7, 12, device='meta'), torch.zeros(7, device='meta')),
    'linear of rows': lambda: F.linear(TOKENS[0], torch.zeros(7, 12, device='meta'), torch.zeros(7, device='meta')),
    'a sum with a product': lambda: torch.addmm(torch.zeros(5, 7, device='meta'), TOKENS[0], torch.zeros(12, 7, device='meta'), beta=2),
    'batch norm': lambda: F.batch_norm(X, GAIN, GAIN, GAIN, GAIN),
    'batch norm without weights': lambda: F.batch_norm(X, GAIN, GAIN),
    'batch norm in training': lambda: F.batch_norm(X, None, None, training=True),
    'batch norm of channels last': lambda: F.batch_norm(X.to(memory_format=torch.channels_last), GAIN, GAIN, GAIN, GAIN),
    'batch norm of half by float': lambda: F.batch_norm(X.half(), GAIN, GAIN, GAIN, GAIN),
    'layer norm': lambda: F.layer_norm(TOKENS, (12,), WIDE, WIDE),
    'layer norm over two axes': lambda: F.layer_norm(TOKENS, (5, 12)),
    'layer norm of a transposed': lambda: F.layer_norm(TOKENS.transpose(0, 1), (12,), WIDE, WIDE),
    'all of layer norm': lambda: torch.native_layer_norm(TOKENS, (12,), WIDE, WIDE, 1e-5),
    'group norm': lambda: F.group_norm(X, 3, GAIN, GAIN),
    'all of group norm': lambda: torch.native_group_norm(X, GAIN, GAIN, 2, 6, 80, 3, 1e-5)}
REFUSED: dict[str, Callable[[], Any]] = {
    'no rows': lambda: F.interpolate(X, size=(0, 7), mode='bilinear'),
    'a grid of another batch': lambda: F.grid_sample(X, torch.zeros(3, 3, 4, 2, device='meta'), align_corners=False),
    'a product of other widths': lambda: torch.addmm(WIDE, TOKENS[0, :, :11], torch.zeros(12, 12, device='meta')),
    'a layer of another width': lambda: F.layer_norm(TOKENS[..., :11], (12,), WIDE, WIDE)}


def _described(result: Any) -> list[tuple[Any, ...]]:
    return [(part.shape, part.dtype, part.stride(), part.device) for part in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize('case', CASES)
def test_shapes_are_those_of_torch(case: str) -> None:
    with ShapesOnly():
        known = CASES[case]()
    assert _described(known) == _described(CASES[case]())


@pytest.mark.parametrize('case', REFUSED)
def test_what_torch_refuses_is_refused(case: str) -> None:
    with pytest.raises((RuntimeError, ValueError, ArithmeticError)) as expected:
        REFUSED[case]()
    with ShapesOnly(), pytest.raises(expected.type):
        REFUSED[case]()


def test_torch_is_not_asked_for_the_usual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model runs through the rules, and each of them answers."""
    answered: set[Any] = set()

    def noted(func: Any, rule: known_shapes.Rule) -> known_shapes.Rule:
        def ask(*args: Any) -> Any:
            result = rule(*args)
            answered.update([func] if result is not None else [])
            return result
        return ask

    for func, rule in known_shapes.RULES.items():
        monkeypatch.setitem(known_shapes.RULES, func, noted(func, rule))

    def model(image: Tensor) -> Tensor:
        x = F.conv2d(image, torch.zeros(6, 3, 3, 3))
        x = F.group_norm(F.batch_norm(x, torch.zeros(6), torch.ones(6), torch.ones(6), torch.ones(6)), 3)
        x = F.interpolate(F.interpolate(x, size=(9, 9), mode='bilinear'), size=(5, 4), mode='bicubic')
        x = F.layer_norm(F.grid_sample(x, torch.zeros(1, 2, 2, 2), align_corners=False), (2,))
        return F.linear(x.flatten(0, 2), torch.zeros(3, 2), torch.zeros(3))

    assert record_sizes(model, (1, 3, 32, 32), {}).error == ''
    assert answered == set(known_shapes.RULES)
