"""Replace the batch of mmdet's Mask2Former before 3.2: the number of the features, not that of the metas."""
from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from mmexport.patching import Environment, Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class Mask2FormerBatch(Patch):
    """Take the batch of the queries from the features: mmdet 3.0 and 3.1 take ``len(batch_img_metas)``, which a trace makes a constant.

    Sources: mmdet/models/dense_heads/mask2former_head.py (``Mask2FormerHead.forward``) of 3.0.0 and 3.2.0, where it is
    ``x[0].shape[0]``. mmseg's Mask2Former inherits it.
    """

    targets = ('mmdet.models.dense_heads.mask2former_head.Mask2FormerHead.forward',)
    upstream = 'mmdet 3.0.0'

    def check(self, env: Environment) -> str | None:
        version = str(env.versions.get('mmdet', ''))
        return None if version.startswith(('3.0.', '3.1.')) else f'mmdet {version} takes the batch from the features itself'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(head: Any, x: Sequence[Tensor], batch_data_samples: Sequence[Any]) -> Any:
            with _lengths_of_metas(original, len(batch_data_samples), x[0].shape[0]):
                return original(head, x, batch_data_samples)

        return forward


@contextmanager
def _lengths_of_metas(function: Callable[..., Any], count: int, batch: Any) -> Iterator[None]:
    """Let ``len()`` of a list of `count` metas be `batch` in the module of `function`."""
    def length(thing: Any) -> Any:
        metas = isinstance(thing, list) and builtins.len(thing) == count and all(isinstance(item, dict) for item in thing)
        return batch if metas else builtins.len(thing)

    names = vars(sys.modules[function.__module__])
    names['len'] = length
    try:
        yield
    finally:
        del names['len']
