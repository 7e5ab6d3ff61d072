"""Export instance segmentation in one stage with dynamic kernels.

The head gives each box the weights of a small network, which computes the mask of the box from a map of features.
"""
from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ....errors import UnsupportedModelError
from ....ops.ranking import rows_at
from ...base import Adapter
from ...specs import LOGIT_TOLERANCE, STEEPEST, OutputSpec
from ..boxes.candidates import Candidates
from ..boxes.decoders import owner_of
from ..boxes.dense import decoded, rows_of, with_places
from ..boxes.suppression import GREEDY, check_suppression, places_kept, rows_kept
from ..detection import Detection, check_limit
from ..pasting import decided, read_masks


class DynamicMasks(Detection):
    """Give boxes as `Detection` does, and `masks` (N, K, H, W): uint8, 1 where the probability is over the threshold.

    A subclass says what differs between heads. ``raw``: the maps by `map_names`, each a tensor a level; the last is `features_0`, the
    map that all masks are computed from.
    """

    task = 'detection (one stage with masks)'
    # The methods that are replaced here, with the classes that define them, by the attribute of the model that has them.
    known: ClassVar[dict[str, dict[str, str]]]

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        return hasattr(model, 'extract_feat') and all(
            hasattr(getattr(model, part, None), name) for part, names in cls.known.items() for name in names)

    def check_head(self) -> None:
        for part, names in self.known.items():
            for name, known in names.items():
                head = getattr(self.model, part)
                if (owner := owner_of(head, name)) != known:
                    raise UnsupportedModelError(f'{type(head).__name__} decides by a {name} of {owner}, which mmexport does not know: use '
                                                '--outputs raw')
        check_suppression(self.head.test_cfg, GREEDY)
        check_limit(self.head)

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Return output and input channels of each layer of the network of a mask."""
        part = self.mask_part
        return [(biases, weights // biases) for weights, biases in zip(part.weight_nums, part.bias_nums, strict=True)]

    @property
    def mask_part(self) -> Any:
        """Return the module that knows the layers, and the places of the map of features."""
        raise NotImplementedError

    def reach_of(self, strides: Tensor) -> Tensor:
        """Return the length by which coordinates are divided, for boxes of levels with these strides."""
        raise NotImplementedError

    def in_picture(self, logits: Tensor, size: Sequence[Any]) -> Tensor:
        """Return the probabilities (N, K, H, W) of logits (N, K, h, w)."""
        raise NotImplementedError

    @property
    def threshold(self) -> float:
        raise NotImplementedError

    @classmethod
    def variant(cls, option: str) -> type[Adapter] | None:
        from ..padded import Padded
        # Its masks are those of the whole picture.
        return cls if option == 'paste' else type(f'{cls.__name__}Padded', (cls, Padded), {'__doc__': cls.__doc__})

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        if self.outputs == 'raw':
            return super().specs
        return (*super().specs, OutputSpec('masks', 'uint8', ('batch', 'row', 'height', 'width'), 'detections'))

    def final(self, raw: tuple[Tensor, ...], image: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        rows, logits = self.rows_and_logits(raw, others[0] if others else self.sizes_of(image))
        return (*rows, decided(self.in_picture(logits, image.shape[2:]) > self.threshold, rows[3], others[0] if others else None))

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, recorded: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return also `mask_near` (N, K, H, W): the pixels whose probability is at the threshold."""
        sizes = recorded.get('img_shape', self.sizes_of(image))
        logits = self.rows_and_logits(raw, sizes)[1]
        slack = STEEPEST * LOGIT_TOLERANCE * float(logits.abs().max())
        near = (self.in_picture(logits, image.shape[2:]) - self.threshold).abs() <= slack
        return {**self.close_calls_within(raw, sizes), 'mask_near': near}

    def rows_and_logits(self, raw: tuple[Tensor, ...], sizes: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the rows of `Detection`, and the logits of their masks (N, K, h, w)."""
        candidates, places = self._with_places(raw, sizes)
        chosen = places_kept(candidates, self.head.test_cfg)
        maps, features = self._grouped(raw)
        place = places.gather(1, chosen.places)
        count = sum(weights + biases for weights, biases in zip(self.mask_part.weight_nums, self.mask_part.bias_nums, strict=True))
        kernels = rows_at(torch.cat([rows_of(level, count) for level in maps[-1]], dim=1), place)
        priors = torch.cat(self.head.prior_generator.grid_priors([level.shape[2:] for level in maps[0]], dtype=kernels.dtype,
                                                                 device=kernels.device, with_stride=True))[place]
        return rows_kept(candidates, chosen), self._logits(features, priors[..., :2], self.reach_of(priors[..., 2]), kernels)

    def _logits(self, features: Tensor, points: Tensor, reach: Tensor, kernels: Tensor) -> Tensor:
        """Run the network of each row on the map of features (N, C, h, w) and on coordinates relative to `points` (N, K, 2)."""
        height, width = features.shape[2:]
        grid = self.mask_part.prior_generator.single_level_grid_priors((height, width), 0, device=features.device)
        relative = (points[:, :, None] - grid).transpose(2, 3) / reach[..., None, None]
        parts = kernels.split([*self.mask_part.weight_nums, *self.mask_part.bias_nums], dim=2)
        values = None
        for weight, bias, (after, before) in zip(parts[:len(self.layers)], parts[len(self.layers):], self.layers, strict=True):
            weight = weight.unflatten(2, (after, before))
            if values is None:
                # The map is the same for all rows.
                values = weight[..., :2] @ relative + (weight[..., 2:].flatten(1, 2) @ features.flatten(2)).unflatten(1, weight.shape[1:3])
            else:
                values = weight @ values.relu()
            values = values + bias[..., None]
        assert values is not None
        return values[:, :, 0].unflatten(2, (height, width))

    def _candidates(self, raw: tuple[Tensor, ...], sizes: Tensor) -> Candidates:
        return self._with_places(raw, sizes)[0]

    def _with_places(self, raw: tuple[Tensor, ...], sizes: Tensor) -> tuple[Candidates, Tensor]:
        def boxes(_: int, priors: Tensor, deltas: Tensor) -> Tensor:
            return decoded(self.head.bbox_coder, priors, deltas, sizes)

        maps = self._grouped(raw)[0][:-1]
        return with_places(self.head, maps, self.head.bbox_coder.encode_size, boxes)

    def _grouped(self, raw: tuple[Tensor, ...]) -> tuple[list[list[Tensor]], Tensor]:
        """Return the maps of the head, those of the kernels last, and the map of features."""
        maps = iter(raw)
        *groups, features = [list(islice(maps, count)) for count in self.levels]
        return groups, features[0]

    def flattened(self, *groups: Sequence[Tensor]) -> tuple[Tensor, ...]:
        self.levels = [len(group) for group in groups]
        return tuple(level for group in groups for level in group)

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        return {**super().read(samples), 'masks': read_masks(samples, self.limit)}
