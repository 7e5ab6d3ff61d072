"""Tell in the report how a file decides otherwise than a detector. A user's own methods are named, too."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import nn

from ...compat.missing_loss import REMARK
from .boxes.suppression import LEAST_SIZE

if TYPE_CHECKING:
    from .detection import Detection

# Packages whose methods the adapters are written for.
KNOWN = ('mmdet', 'mmengine')
# Methods of a detector and its heads that make results, and are run by ``test_step`` alone.
NOT_RUN = ('predict', 'add_pred_to_datasample', 'test_step')


def remarks_of(adapter: Detection) -> Iterator[str]:
    """Yield a line for each difference. Of raw outputs nothing is decided, and their heads may have no limit."""
    if getattr(adapter.head, 'loss_cls', adapter) is None:
        yield REMARK.format(type(adapter.head).__name__)
    if adapter.outputs == 'final':
        yield from dict.fromkeys(own_code(adapter.model))
        if adapter.least_size > 0:
            yield (f'test_cfg.{LEAST_SIZE}={adapter.least_size} is in pixels of the input here; mmdet compares boxes of the original '
                   'picture, which differ where it was resized')
    if adapter.most and adapter.most < adapter.limit:
        yield (f'no picture here has more than {adapter.most} detections: what the file does with more than '
               f'max_per_img={adapter.limit} was not seen')
    if adapter.most and adapter.most > adapter.limit:
        yield (f'mmdet gives up to {adapter.most} rows of a picture here, and the file the best {adapter.limit}, which were compared: '
               '--cfg-options model.test_cfg.max_per_img=N for more')


def own_code(model: nn.Module) -> Iterator[str]:
    """Yield a line for each class of the user that decides about detections.

    Files compute what mmdet's own `predict` computes, in tensors. One that a user's class has may do the same, and then the file is right:
    only the comparison tells. So the report names it, and refuses nothing.
    """
    for part in model.modules():
        for method in NOT_RUN:
            if owner := _own(part, method):
                yield (f'{_named(owner)}.{method} is not run in the file, which computes what mmdet does: where results differ on an input '
                       'here, the file fails; other inputs were not seen')
        if owner := _own(getattr(part, 'bbox_coder', None), 'decode'):
            yield f'{_named(owner)}.decode is run without max_shape, and the boxes end at the border of the picture afterwards'


def _own(part: Any, method: str) -> type | None:
    """Return the class that defines a method of `part`, if it is the user's."""
    owner = next((cls for cls in type(part).__mro__ if method in vars(cls)), None)
    return None if owner is None or owner.__module__.partition('.')[0] in KNOWN else owner


def _named(owner: type) -> str:
    return f'{owner.__module__}.{owner.__qualname__}'
