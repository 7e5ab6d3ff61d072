"""Export box detection: mmdet's detectors of one stage with a dense head."""
from __future__ import annotations

from itertools import islice
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...checker.kinds.detections import NAMES
from ...errors import UnsupportedModelError
from ...registry import ADAPTERS
from ..base import Adapter
from ..image_metas import image_metas
from ..specs import OutputSpec
from .boxes.decoders import METHODS, decoder_of, owner_of, owners
from .boxes.evidence import close_calls, scale_of
from .boxes.filling import filled
from .boxes.suppression import GREEDY, LEAST_SIZE, SOFT, check_suppression, kept, limit_of
from .remarks import remarks_of

GROUPS = ('scores', 'boxes', 'factors')
# The head whose `_bbox_post_process` has no limit of rows.
NO_LIMIT = 'YOLOXHead'
# By the class of `_bbox_post_process`, the heads that do not read the least size of boxes; those of regions and of queries have no method.
ANY_SIZE = (NO_LIMIT, 'PAAHead', 'none')


@ADAPTERS.register_module()
class Detection(Adapter):
    """Give the boxes of mmdet's detectors of one stage.

    ``raw``: the maps of the head, `scores_0`, `boxes_0` and, if there are any, `factors_0` (N, channels, h, w), and so on for each level.
    ``final``, by the head's test_cfg: `boxes` (N, K, 4) x1 y1 x2 y2 in pixels of the input, `scores` (N, K), `labels` (N, K), the best
    first, of which `num` (N) rows count; the others are zero. K is max_per_img (300 where the head has no limit).

    Source: mmdet/models/dense_heads/base_dense_head.py, whose loops over pictures become tensor operations here, see `dense`.
    """

    task = 'detection'
    packages = ('mmdet',)
    # The names of the maps of the head.
    map_names: ClassVar[tuple[str, ...]] = GROUPS

    def __init__(self, model: nn.Module, outputs: str = 'final', normalize: bool = False) -> None:
        super().__init__(model, outputs, normalize)
        self.levels: list[int] = []
        # The most rows that mmdet gave of a picture.
        self.most = 0
        if outputs == 'final':
            self.check_head()

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        head = getattr(model, 'bbox_head', None)
        others = any(hasattr(model, name) for name in ('mask_head', 'roi_head', 'forward_transformer'))
        return all(hasattr(head, name) for name in METHODS) and hasattr(model, 'extract_feat') and not others

    def check_head(self) -> None:
        """Raise if `final` is not known for this head."""
        if decoder_of(self.head) is None:
            where = ', '.join(f'{owner}.{method}' for owner, method in zip(owners(self.head), METHODS, strict=True)
                              if owner != 'BaseDenseHead')
            raise UnsupportedModelError(f'{type(self.head).__name__} decodes by {where}, which mmexport does not know: leave it out and do '
                                        'what it does with the rows of the file, name an adapter of your own by export.task, or use '
                                        '--outputs raw')
        check_suppression(self.head.test_cfg, GREEDY, SOFT)
        if owner_of(self.head, '_bbox_post_process') != NO_LIMIT:
            check_limit(self.head)

    def _part(self, name: str) -> Any:
        return getattr(self.model, name)

    @property
    def head(self) -> Any:
        return self.model.bbox_head

    @property
    def limit(self) -> int:
        """Return the number of rows of each picture."""
        return limit_of(self.head.test_cfg)

    @property
    def num_classes(self) -> int:
        return int(self.head.num_classes)

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        if self.outputs == 'raw':
            return self.raw_specs
        return tuple(OutputSpec(name, dtype, ('batch', *axes), 'detections') for name, dtype, axes in (
            ('boxes', 'float32', ('row', 'box')), ('scores', 'float32', ('row',)), ('labels', 'int64', ('row',)), ('num', 'int64', ())))

    @property
    def raw_specs(self) -> tuple[OutputSpec, ...]:
        if not self.levels:
            with torch.no_grad():
                # mmcv's deformable convolution refuses maps that are smaller than its kernel.
                self.raw(next(self.model.parameters()).new_zeros(1, self.channels, 512, 512))
        # YOLOv3 has one map for all.
        names = self.map_names if len(self.levels) > 1 else ('predictions',)
        return tuple(OutputSpec(f'{name}_{level}', 'float32', ('batch', 'channel', 'h', 'w'), 'pixels')
                     for name, count in zip(names, self.levels, strict=False) for level in range(count))

    def data_samples(self, image: Tensor) -> list[Any]:
        from mmdet.structures import DetDataSample
        unscaled = self.unscaled((image.shape[2], image.shape[3]))
        return [DetDataSample(metainfo={**meta, **unscaled}) for meta in image_metas(image)]

    def raw(self, image: Tensor) -> tuple[Tensor, ...]:
        maps = self.head(self.model.extract_feat(image))  # type: ignore[operator]
        self.levels = [len(group) for group in maps]
        return tuple(level for group in maps for level in group)

    @classmethod
    def variant(cls, option: str) -> type[Adapter] | None:
        from .padded import with_img_shape
        return with_img_shape(cls) if option == 'img_shape' else None

    def final(self, raw: tuple[Tensor, ...], image: Tensor) -> tuple[Tensor, ...]:
        return self.kept_within(raw, self.sizes_of(image))

    def kept_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> tuple[Tensor, ...]:
        """Return the rows of `specs`; boxes end at height and width (N, 2) of each picture."""
        return kept(self._candidates(raw, sizes), self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        """Return the test_cfg as the head reads it."""
        return {**self.head.test_cfg, LEAST_SIZE: self.least_size}

    @property
    def least_size(self) -> float:
        """Return the side that boxes must be longer than, in pixels; -1 if the head does not ask."""
        if owner_of(self.head, '_bbox_post_process') in ANY_SIZE:
            return -1
        least: float = self.head.test_cfg.get(LEAST_SIZE, -1)
        return least

    def without_padding(self, raw: tuple[Tensor, ...], image: Tensor, size: tuple[int, int], expected: dict[str, Tensor],
                        evidence: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the detections of the same maps. Boxes end with the picture, not with its padding."""
        picture = image[..., :size[0], :size[1]]
        # Fewer where the model gives no masks.
        outputs = dict(zip((*NAMES, 'masks'), self.final(raw, picture), strict=False))
        return on_cpu(outputs), on_cpu(self.evidence(raw, picture, {}))

    @staticmethod
    def sizes_of(image: Tensor) -> Tensor:
        """Return height and width of each picture (N, 2), which fills its input."""
        zeros = image.new_zeros(image.shape[0])
        return torch.stack([zeros + image.shape[2], zeros + image.shape[3]], dim=1)

    def _candidates(self, raw: tuple[Tensor, ...], sizes: Tensor) -> Any:
        decode = decoder_of(self.head)
        assert decode is not None
        maps = iter(raw)
        return decode(self.head, [list(islice(maps, count)) for count in self.levels], sizes)

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, recorded: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.close_calls_within(raw, self.sizes_of(image))

    def close_calls_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> dict[str, Tensor]:
        """Return which rows rounding may change, see `evidence.close_calls`."""
        candidates, cfg = self._candidates(raw, sizes), self.settings
        return close_calls(candidates, cfg, scale_of(raw[:self.levels[0]], candidates, int(cfg.get('nms_pre', 0))))

    def notes(self) -> dict[str, Any]:
        if self.outputs != 'final' or owner_of(self.head, '_bbox_post_process') != NO_LIMIT:
            return super().notes()
        reason = f'{NO_LIMIT} of mmdet gives every box that stays; the file gives the best, as many as test_cfg.max_per_img says (or 300)'
        return {**super().notes(), 'rows': dict(most=self.limit, reason=reason)}

    def remarks(self) -> tuple[str, ...]:
        return tuple(remarks_of(self))

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        self.most = max(self.most, *(len(sample.pred_instances) for sample in samples))
        predictions = [sample.pred_instances[:self.limit] for sample in samples]
        outputs = {name: torch.stack([filled(rows[key].to(dtype), self.limit) for rows in predictions]) for name, key, dtype in (
            ('boxes', 'bboxes', torch.float32), ('scores', 'scores', torch.float32), ('labels', 'labels', torch.int64))}
        return {**outputs, 'num': torch.tensor([len(rows) for rows in predictions])}


def check_limit(head: Any) -> None:
    """Raise if a head whose `_bbox_post_process` cuts the rows at `max_per_img` has no such limit."""
    if (limit := int(head.test_cfg.get('max_per_img', 1))) <= 0:
        raise UnsupportedModelError(f'test_cfg.max_per_img is {limit}, with which mmdet drops the last box of each picture: set it, or use '
                                    '--outputs raw')


def on_cpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Move `tensors` to the CPU."""
    return {name: tensor.cpu() for name, tensor in tensors.items()}
