"""Replace mmseg's resize: no warning that compares sizes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.nn import functional as F

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class ResizeWarning(Patch):
    """Resize without upstream's warning, which compares sizes with ``align_corners``.

    torch.export treats this comparison as one of the model, ``(output_h - 1) % (input_h - 1)`` of open sizes, and the program then refuses
    every size but the example's. Only the warning depends on it.

    Source: mmseg/models/utils/wrappers.py (``resize``).
    """

    targets = ('mmseg.models.utils.wrappers.resize',)
    upstream = 'mmsegmentation 1.0.0 1.2.2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:

        def resize(input: Any, size: Any = None, scale_factor: Any = None, mode: str = 'nearest', align_corners: bool | None = None,
                   warning: bool = True) -> Any:
            return F.interpolate(input, size, scale_factor, mode, align_corners)

        return resize
