"""Name the methods of the user's own classes that ``test_step`` runs beside the network."""
from __future__ import annotations

from pathlib import Path
from types import FunctionType

from torch import nn

from ..branches import is_own_file

# What OpenMMLab's test_step calls around a network; upstream classes of other tasks have some of them.
METHODS = ('test_step', 'predict', 'postprocess_result', 'add_pred_to_datasample', 'predict_by_feat', 'inference', 'whole_inference',
           'slide_inference')


def own_methods(model: nn.Module) -> tuple[str, ...]:
    """Return ``Class.method (FILE:LINE)`` for each such method in `model`."""
    found: dict[str, None] = {}
    for cls in dict.fromkeys(type(module) for module in model.modules()):
        for name in METHODS:
            function = getattr(cls, name, None)
            if isinstance(function, FunctionType) and is_own_file(function.__code__.co_filename):
                found[f'{function.__qualname__} ({Path(function.__code__.co_filename).name}:{function.__code__.co_firstlineno})'] = None
    return tuple(found)
