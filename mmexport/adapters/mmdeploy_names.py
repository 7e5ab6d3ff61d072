"""Give final outputs the names and shapes of mmdeploy.

Code that was written for its files then runs unchanged with ours.

Source: mmdeploy 1.3, docs/en/02-how-to-run/convert_model.md and mmdeploy/codebase/mmdet/deploy/object_detection_model.py.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ConfigError
from .base import Adapter
from .detection.detection import Detection
from .panoptic.mask_classification import MaskClassification, enlarged
from .specs import LOGIT_TOLERANCE, STEEPEST, InputSpec, OutputSpec

# By the kind of our first output.
SPECS = {
    'instance': (OutputSpec('dets', 'float32', ('batch', 'row', 'box and score'), 'dets_of_instances'),
                 OutputSpec('labels', 'int64', ('batch', 'row'), 'dets_of_instances')),
    'detections': (OutputSpec('dets', 'float32', ('batch', 'row', 'box and score'), 'dets'),
                   OutputSpec('labels', 'int64', ('batch', 'row'), 'dets')),
    'labels': (OutputSpec('output', 'int64', ('batch', 'one', 'height', 'width'), 'channel_labels'),),
}
NOT_FINAL = ("export.outputs.names='mmdeploy' is known for final detections, label maps and mask classifiers, and these are {} outputs of "
             '{}, {}: leave it out')


def with_mmdeploy_names(cls: type[Adapter]) -> type[Adapter]:
    """Return a subclass whose input is ``input``, and whose final outputs have mmdeploy's names.

    Detections: ``dets`` (N, K, 5), boxes with their scores, and ``labels`` (N, K), zero after the last row; with masks also ``masks``,
    probabilities (N, K, h, w) in the cells of the boxes, or (N, K, H, W) uint8 of the picture; those of SOLO are uint8. Label maps:
    ``output`` (N, 1, H, W) int64. Mask classifiers: ``cls_logits`` (N, Q, C+1) and ``mask_logits`` (N, Q, H, W), before any decision.
    """
    base = _Logits if issubclass(cls, MaskClassification) else _Renamed
    return type(f'{cls.__name__}AsMMDeploy', (base, cls), {'__doc__': cls.__doc__})


class _Input(Adapter):
    """Call the first input ``input``."""

    @property
    def input_specs(self) -> tuple[InputSpec, ...]:  # type: ignore[override]
        first, *others = super().input_specs
        return (replace(first, name='input'), *others)


class _Logits(_Input):
    """Give the logits of a mask classifier, of masks as large as the input, which mmdeploy fuses outside of the file.

    They are compared as raw outputs are. Source: mmdeploy/codebase/mmdet/models/detectors/maskformer.py.
    """

    def __init__(self, model: nn.Module, outputs: str = 'final', normalize: bool = False) -> None:
        if outputs != 'final':
            raise ConfigError(NOT_FINAL.format(outputs, self.task, 'queries'))
        super().__init__(model, 'raw', normalize)

    def decide(self, raw: tuple[Tensor, ...], *inputs: Tensor) -> tuple[Tensor, ...]:
        return raw[0], enlarged(raw[1], inputs[0])


class _Renamed(_Input):
    """Convert what the class after it in the order of methods gives."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        kind = super().specs[0].kind
        if self.outputs != 'final' or kind not in SPECS or (kind == 'instance' and not isinstance(self, Detection)):
            raise ConfigError(NOT_FINAL.format(self.outputs, self.task, kind))

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        first, *others = SPECS[super().specs[0].kind]
        masks = (replace(spec, kind=first.kind, dtype='uint8' if spec.dtype == 'bool' else spec.dtype)
                 for spec in super().specs if spec.name == 'masks')
        return (first, *others, *masks)

    def decide(self, raw: tuple[Tensor, ...], *inputs: Tensor) -> tuple[Tensor, ...]:
        named = self._renamed(dict(zip([spec.name for spec in super().specs], super().decide(raw, *inputs), strict=True)))
        return tuple(named[spec.name] for spec in self.specs)

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, recorded: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what the class after it knows. Of masks it says how far their probabilities may be off, not their logits."""
        evidence = super().evidence(raw, image, recorded)
        if 'mask_slack' not in evidence:
            return evidence
        # What a decider takes beside the picture: where it ends.
        *_, logits = super().decide(raw, image, *(recorded[name] for name in ('img_shape',) if name in recorded))
        return {**evidence, 'mask_slack': STEEPEST * (evidence['mask_slack'] + LOGIT_TOLERANCE * logits.abs().max())}

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        return self._renamed(super().read(samples))

    def without_padding(self, raw: tuple[Tensor, ...], image: Tensor, size: tuple[int, int], expected: dict[str, Tensor],
                        evidence: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        outputs, evidence = super().without_padding(raw, image, size, expected, evidence)
        # What was not computed anew has its names already.
        return outputs if outputs is expected else self._renamed(outputs), evidence

    def _renamed(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if super().specs[0].kind == 'labels':
            return dict(output=outputs['labels'].to(torch.int64).unsqueeze(1))
        masks = {name: value.sigmoid() * (outputs['scores'] > 0)[..., None, None] if value.is_floating_point() else value.to(torch.uint8)
                 for name, value in outputs.items() if name == 'masks'}
        return dict(dets=torch.cat([outputs['boxes'], outputs['scores'].unsqueeze(2)], dim=2), labels=outputs['labels'], **masks)
