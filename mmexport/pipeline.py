"""The config's own test pipeline and ``test_step``, as an independent witness for one photograph.

Everything else in a verification compares an adapter with itself; here OpenMMLab's own post-processing has the word.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from .adapters import Adapter
from .adapters.mask_classification import boxes_of
from .checking.instances import compare_instances
from .checking.labels import compare_panoptic
from .checking.reduced import FULL, REDUCED
from .photograph import Photograph
from .randomness import drawn_alike


@dataclass(frozen=True)
class PipelineCheck:
    """Artifact against ``test_step`` on one photograph, cropped to what is picture; or why that was not run."""

    backend: str
    agreement: float = 0.0
    threshold: float = 1.0
    padded: tuple[int, int] = (0, 0)
    image: tuple[int, ...] = ()
    skipped: str | None = None

    @property
    def passed(self) -> bool | None:
        return None if self.skipped else self.agreement >= self.threshold

    @property
    def reason(self) -> str | None:
        return f'{self.agreement:.2%} agrees with test_step, {self.threshold:.2%} must' if self.passed is False else None

    @property
    def summary(self) -> str:
        if self.skipped:
            return f'not run: {self.skipped}'
        return f"{self.agreement:.3%} agrees ({'pass' if self.passed else 'FAIL'}), padding {self.padded[0]}x{self.padded[1]}"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), 'passed': self.passed, 'reason': self.reason}


def why_not_run(adapter: Adapter, photograph: Photograph) -> str | None:
    """Why there is nothing to compare, to be asked before a file is loaded for it; None where there is."""
    if adapter.outputs != 'final':
        return 'raw outputs hold no decisions'
    return photograph.reason if photograph.packed is None else None


def check_pipeline(backend: str, adapter: Adapter, artifact: Callable[[Tensor], Any], photograph: Photograph,
                   precision: str = FULL) -> PipelineCheck:
    """Compare the artifact's decisions on the photograph with those of the model's own ``test_step``, unless `why_not_run`."""
    assert photograph.packed is not None
    image, (height, width) = photograph.image, photograph.img_shape
    padded = (image.shape[2] - height, image.shape[3] - width)
    with torch.no_grad():
        found = {spec.name: output.cpu() for spec, output in zip(adapter.specs, artifact(image), strict=True)}
        wanted = {name: tensor.cpu() for name, tensor in adapter.read(run_test_step(adapter, photograph.packed)).items()}
        image = adapter.preprocess(image)
        with drawn_alike():
            raw, seen = adapter.watch(image)
        evidence = {name: tensor.cpu() for name, tensor in adapter.evidence(raw, image, seen).items()}
        excused = adapter.padding_decides(raw, image, height, width) if any(padded) else None
    shares = _agreements(wanted, found, evidence, height, width, excused)
    threshold = REDUCED[precision].agreement if precision != FULL else 1.0
    return PipelineCheck(backend, min(shares), threshold, padded, tuple(image.shape))


def run_test_step(adapter: Adapter, packed: Mapping[str, Any]) -> list[Any]:
    """The data samples that ``model.test_step`` returns, at the size that the pipeline made and not stretched back to the file's."""
    packed = deepcopy(dict(packed))
    sample = packed['data_samples']
    size = tuple(sample.metainfo['img_shape'][:2])
    sample.set_metainfo(dict(ori_shape=size, scale_factor=(1.0, 1.0)))
    with drawn_alike():
        found: list[Any] = adapter.model.test_step(dict(inputs=[packed['inputs']], data_samples=[sample]))  # type: ignore[operator]
    return found


def _agreements(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], evidence: Mapping[str, Tensor], height: int,
                width: int, excused: Tensor | None) -> list[float]:
    """The share of pixels, or of instance rows, that agree wherever eager was clear and padding had no say."""
    near = evidence.get('near', torch.zeros((1, height, width)).bool())
    if 'margin' in evidence:
        near = evidence['margin'] < 1e-3
    if 'exempt' in evidence:
        near = near | evidence['exempt']
    shares = []
    for name in ('panoptic', 'labels'):
        if name in wanted and wanted[name].dim() == 3:
            crop = found[name][:, :height, :width]
            unsure = near[:, :height, :width] if excused is None else near[:, :height, :width] | excused.cpu()
            verdict = compare_panoptic(wanted[name].to(crop.dtype), crop, {'near': unsure})
            shares.append(1 - float(verdict.get('beyond', 1.0)))
    if 'masks' in wanted:
        masks = found['masks'][..., :height, :width]
        padded = masks.shape != found['masks'].shape
        rows = {**{name: found[name] for name in ('scores', 'labels', 'num')}, 'masks': masks,
                'boxes': boxes_of(masks) if padded else found['boxes']}
        crop_evidence = {'edge_rows': evidence['edge_rows'], 'mask_near': evidence['mask_near'][..., :height, :width]}
        # A row's score is a mean over its mask, from which mmdet leaves the padding out: with padding there is nothing to compare.
        any_score = 1 / max(float(wanted['scores'].abs().max()), 1e-12)
        verdict = compare_instances(wanted, rows, crop_evidence, any_score if padded else 1e-3)
        shares.append(1 - float(verdict.get('beyond', 1.0)))
    return shares
