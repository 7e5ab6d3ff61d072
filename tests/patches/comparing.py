"""Run upstream's code with and without a patch."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from mmexport.patching import patched

ROUNDING = 2e-6  # a dozen float32 roundings of values of order one


def both(name: object, run: object) -> tuple[Tensor, Tensor]:
    """Return what upstream computes, and what it computes with the patch on."""
    with torch.no_grad():
        original = run()  # type: ignore[operator]
        with patched([name]) as rows:
            # Of all patches those are on whose modules this process has imported.
            assert any(row.skipped is None for row in rows)
            replaced = run()  # type: ignore[operator]
    return original, replaced


def traced_once(names: object, module: nn.Module, example: tuple[Tensor, ...]) -> torch.jit.ScriptModule:
    with patched(names if isinstance(names, list) else [names]), torch.no_grad():
        return torch.jit.trace(module.eval(), example, check_trace=False)
