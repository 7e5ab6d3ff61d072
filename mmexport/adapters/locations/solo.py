"""Export SOLO, Decoupled SOLO and SOLOv2: each location of a grid has scores and a mask."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import UnsupportedModelError
from ...ops.sigmoid import sigmoid
from ...registry import ADAPTERS
from ...utils.override import override
from ..base import Adapter
from ..detection.boxes.candidates import best_pairs
from ..detection.boxes.decoders import owner_of
from ..detection.detection import Detection, on_cpu
from ..detection.pasting import read_masks, within
from ..panoptic.boxes import boxes_of
from ..specs import OutputSpec
from .evidence import evidence_of
from .masks import MASKS, NAMES, at
from .matrix_nms import decayed
from .resizing import enlarged

METHODS = ('predict_by_feat', '_predict_by_feat_single')


class Locations(NamedTuple):
    """Hold what a head says of each location."""

    masks: Tensor
    """(N, L, h, w), probabilities."""
    scores: Tensor
    """(N, L, C), probabilities."""
    peaks: Tensor
    """(N, L, C), whether a score is at least those above and left of it."""


class Rows(NamedTuple):
    """Hold the rows of a picture, the best first."""

    places: Tensor
    """(N, K), the location of each."""
    labels: Tensor
    scores: Tensor
    num: Tensor
    """(N,), how many there are."""


@ADAPTERS.register_module()
class SOLO(Detection):
    """Give the instances of SOLO and its relatives.

    ``raw``: the head's maps before any sigmoid, for each level: of SOLO `masks_0`, `scores_0`; of Decoupled SOLO `columns_0`, `rows_0`,
    `scores_0`; of SOLOv2 `kernels_0`, `scores_0` and `features_0`, which all levels share.
    ``final``, by the head's test_cfg: `scores` (N, K), `labels` (N, K), `masks` (N, K, H, W) bool, of which `num` (N) rows count, and
    `boxes` (N, K, 4) around the masks, where mmdet gives zeros. K is max_per_img.

    The masks of all locations (3,872 in mmdet's configs) are computed, because how many of them count is open.

    Sources: mmdet/models/dense_heads/solo_head.py, solov2_head.py.
    """

    task = 'instances by location'

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        head = getattr(model, 'mask_head', None)
        return hasattr(model, 'extract_feat') and getattr(model, 'bbox_head', None) is None and all(
            hasattr(head, name) for name in (*METHODS, 'num_grids', 'strides', 'conv_cls'))

    @classmethod
    def variant(cls, option: str) -> type[Adapter] | None:
        from ..detection.padded import Padded
        # Its masks are those of the whole picture.
        return cls if option == 'paste' else type(f'{cls.__name__}Padded', (cls, Padded), {'__doc__': cls.__doc__})

    def check_head(self) -> None:
        owners, cfg = {owner_of(self.head, name) for name in METHODS}, self.head.test_cfg
        if len(owners) != 1 or not owners <= MASKS.keys():
            raise UnsupportedModelError(f'{type(self.head).__name__} decides by methods of {", ".join(sorted(owners))}, which mmexport '
                                        'does not know: use --outputs raw')
        if cfg.get('kernel', 'gaussian') != 'gaussian' or min(int(cfg.nms_pre), int(cfg.max_per_img)) <= 0:
            raise UnsupportedModelError(f'test_cfg has kernel={cfg.get("kernel")!r}, nms_pre={cfg.nms_pre}, '
                                        f'max_per_img={cfg.max_per_img}; mmexport knows the gaussian kernel with limits above zero: use '
                                        '--outputs raw')
        if getattr(self.head, 'dynamic_conv_size', 1) != 1:
            raise UnsupportedModelError(f'the head has dynamic_conv_size={self.head.dynamic_conv_size}, and mmexport knows 1: use '
                                        '--outputs raw')

    @property
    def head(self) -> Any:
        return self.model.mask_head

    @property
    def kind(self) -> str:
        """Return the name of the class that defines how the head decides."""
        return owner_of(self.head, '_predict_by_feat_single')

    @property
    def map_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return NAMES[self.kind]

    @property
    def limit(self) -> int:
        return min(int(self.head.test_cfg.max_per_img), int(self.head.test_cfg.nms_pre))

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        if self.outputs == 'raw':
            return self.raw_specs
        return tuple(OutputSpec(name, dtype, ('batch', *axes), 'instance') for name, dtype, axes in (
            ('boxes', 'float32', ('row', 'box')), ('scores', 'float32', ('row',)), ('labels', 'int64', ('row',)), ('num', 'int64', ()),
            ('masks', 'bool', ('row', 'height', 'width'))))

    def raw(self, image: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        features = self.model.extract_feat(image)  # type: ignore[operator]
        # In training SOLO's head gives logits; its layers do not know of this flag.
        with override(self.head, 'training', True):
            maps = self.head(features)
        groups = [[part] if isinstance(part, Tensor) else part for part in maps]
        self.levels = [len(group) for group in groups]
        return tuple(level for group in groups for level in group)

    def groups(self, raw: tuple[Tensor, ...]) -> list[list[Tensor]]:
        """Return the maps by name, as `map_names`, each a tensor a level."""
        maps = iter(raw)
        return [list(islice(maps, count)) for count in self.levels]

    def locations(self, raw: tuple[Tensor, ...]) -> Locations:
        """Return the masks and the scores of all locations."""
        groups = self.groups(raw)
        scores = [sigmoid(level) for level in groups[self.map_names.index('scores')]]
        peaks = [F.max_pool2d(level, 2, stride=1, padding=1)[:, :, :-1, :-1] == level for level in scores]
        return Locations(MASKS[self.kind][0](self.head, groups), *(
            torch.cat([level.flatten(2) for level in part], dim=2).transpose(1, 2) for part in (scores, peaks)))

    def least_areas(self, like: Tensor) -> Tensor:
        """Return the area (L,) that the mask of each location must exceed."""
        return torch.cat([like.new_full((grid * grid,), float(stride))
                          for grid, stride in zip(self.head.num_grids, self.head.strides, strict=True)])

    def rows(self, locations: Locations) -> Rows:
        """Choose the rows, by the head's test_cfg."""
        cfg, masks = self.head.test_cfg, locations.masks
        inside = (masks > float(cfg.mask_thr)).to(masks.dtype)
        areas = inside.sum(dim=(2, 3))
        certainty = (masks * inside).sum(dim=(2, 3)) / areas.clamp(min=1)
        counts = locations.peaks & (locations.scores > float(cfg.score_thr)) & (areas > self.least_areas(areas))[..., None]
        pairs = torch.where(counts, locations.scores * certainty[..., None], torch.full_like(locations.scores, -1.0))
        scores, places, labels = best_pairs(pairs, int(cfg.nms_pre))
        scores = decayed(scores, labels, at(inside.flatten(2), places), scores > 0, float(cfg.sigma))
        stays = (scores > 0) & (scores >= float(cfg.filter_thr))
        scores, best = torch.where(stays, scores, torch.zeros_like(scores)).topk(self.limit, dim=1)
        num = stays.sum(dim=1).clamp(max=self.limit)
        there = torch.arange(self.limit, device=num.device) < num[:, None]
        return Rows(places.gather(1, best) * there, labels.gather(1, best) * there, scores * there, num)

    def final(self, raw: tuple[Tensor, ...], image: Tensor, *img_shape: Tensor) -> tuple[Tensor, ...]:
        locations = self.locations(raw)
        rows = self.rows(locations)
        masks = self.in_picture(at(locations.masks, rows.places), image.shape[2:], *img_shape) > float(self.head.test_cfg.mask_thr)
        masks = masks & (torch.arange(self.limit, device=masks.device) < rows.num[:, None])[..., None, None]
        masks = within(masks, img_shape[0]) if img_shape else masks
        return boxes_of(masks), rows.scores, rows.labels, rows.num, masks

    def in_picture(self, masks: Tensor, size: Sequence[Any], sizes: Tensor | None = None) -> Tensor:
        """Return the probabilities (N, K, H, W) of masks (N, K, h, w); of pictures with padding, within height and width (N, 2)."""
        stride = int(getattr(self.head, 'mask_stride', 4))
        for axis in (0, 1):
            masks = enlarged(masks, axis + 2, size[axis], stride, None if sizes is None else sizes[:, axis])
        return masks

    def without_padding(self, raw: tuple[Tensor, ...], image: Tensor, size: tuple[int, int], expected: dict[str, Tensor],
                        evidence: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        picture = image[..., :size[0], :size[1]]
        outputs = dict(zip((spec.name for spec in self.specs), self.final(raw, picture), strict=True))
        return on_cpu(outputs), on_cpu(self.evidence(raw, picture, {}))

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, recorded: dict[str, Tensor]) -> dict[str, Tensor]:
        return evidence_of(self, raw, image, recorded.get('img_shape'))

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        masks = read_masks(samples, self.limit).bool()
        return {**super().read(samples), 'masks': masks, 'boxes': boxes_of(masks)}
