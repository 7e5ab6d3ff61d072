"""The config's own test pipeline and ``test_step``, as an independent witness for one photograph.

Everything else in a verification compares an adapter with itself; here OpenMMLab's own post-processing has the word: the model's
``predict``, which ``test_step`` calls after the data_preprocessor that `read_photograph` runs.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .adapters import Adapter
from .adapters.mask_classification import boxes_of
from .checking.instances import compare_instances
from .checking.labels import compare_panoptic
from .errors import ConfigError, InputError
from .inputs import photograph as stretched

if TYPE_CHECKING:
    from mmengine.config import Config

# Padding takes part in the artifact's area ratios and not in mmdet's, which crops first; without padding all must agree.
PADDED_AGREEMENT = 0.99
ANY_SCORE = 1.0


@dataclass(frozen=True)
class Photograph:
    """A picture as the config's pipeline makes it: `image` (1, 3, H, W) normalised and padded, `img_shape` what of it is picture;
    `pipeline` is None, and the picture merely stretched, where the config has no test pipeline.
    """

    path: str
    image: Tensor
    img_shape: tuple[int, int]
    pipeline: tuple[str, ...] | None


@dataclass(frozen=True)
class PipelineCheck:
    """Artifact against ``test_step`` on one photograph, cropped to what is picture."""

    agreement: float
    threshold: float
    padded: tuple[int, int]
    image: tuple[int, ...]

    @property
    def passed(self) -> bool:
        return self.agreement >= self.threshold

    @property
    def reason(self) -> str | None:
        return None if self.passed else f'{self.agreement:.2%} agrees with test_step, {self.threshold:.2%} must'

    @property
    def summary(self) -> str:
        return f"{self.agreement:.3%} agrees ({'pass' if self.passed else 'FAIL'}), padding {self.padded[0]}x{self.padded[1]}"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), 'passed': self.passed, 'reason': self.reason}


def read_photograph(cfg: Config, path: str, adapter: Adapter, device: torch.device) -> Photograph:
    """Run the config's test pipeline and data_preprocessor on the file at `path`.

    Raises:
        InputError: there is no picture, or the pipeline refuses it.
    """
    if not Path(path).is_file():
        raise InputError(f'--image {path}: no such file')
    transforms = _transforms(cfg)
    if not transforms or adapter.preprocess.inside or _window(adapter):
        size = _window(adapter) or (512, 512)
        return Photograph(path, stretched(path, size, adapter).to(device), size, None)
    packed = _run(cfg, transforms, path)
    data = adapter.model.data_preprocessor(dict(inputs=[packed['inputs']], data_samples=[packed['data_samples']]), False)  # type: ignore[operator]
    image = data['inputs'].to(device)
    height, width = packed['data_samples'].metainfo['img_shape'][:2]
    return Photograph(path, image, (int(height), int(width)), tuple(str(step['type']) for step in transforms))


def check_pipeline(adapter: Adapter, artifact: Callable[[Tensor], Any], photograph: Photograph) -> PipelineCheck:
    """Compare the artifact's decisions on the photograph with those of the model's own ``predict``."""
    image, (height, width) = photograph.image, photograph.img_shape
    padded = (image.shape[2] - height, image.shape[3] - width)
    with torch.no_grad():
        outputs = artifact(image)
        found = {spec.name: output.cpu() for spec, output in zip(adapter.specs, outputs, strict=True)}
        wanted = {name: tensor.cpu() for name, tensor in adapter.upstream(image, photograph.img_shape).items()}
        raw, seen = adapter.watch(image)
        evidence = {name: tensor.cpu() for name, tensor in adapter.evidence(raw, image, seen).items()}
    shares = _agreements(wanted, found, evidence, height, width)
    threshold = PADDED_AGREEMENT if any(padded) else 1.0
    return PipelineCheck(min(shares), threshold, padded, tuple(image.shape))


def _agreements(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], evidence: Mapping[str, Tensor], height: int,
                width: int) -> list[float]:
    """The share of pixels, or of instance rows, that agree wherever eager was clear."""
    near = evidence.get('near', torch.zeros((1, height, width)).bool())
    if 'margin' in evidence:
        near = evidence['margin'] < 1e-3
    shares = []
    for name in ('panoptic', 'labels'):
        if name in wanted and wanted[name].dim() == 3:
            crop = found[name][:, :height, :width]
            verdict = compare_panoptic(wanted[name].to(crop.dtype), crop, {'near': near[:, :height, :width]})
            shares.append(1 - float(verdict['beyond']))
    if 'masks' in wanted:
        masks = found['masks'][..., :height, :width]
        padded = masks.shape != found['masks'].shape
        rows = {**{name: found[name] for name in ('scores', 'labels', 'num')}, 'masks': masks,
                'boxes': boxes_of(masks) if padded else found['boxes']}
        crop_evidence = {'edge_rows': evidence['edge_rows'], 'mask_near': evidence['mask_near'][..., :height, :width]}
        # A row's score is a mean over its mask, from which mmdet leaves the padding out: with padding there is nothing to compare.
        verdict = compare_instances(wanted, rows, crop_evidence, ANY_SCORE if padded else 1e-3)
        shares.append(1 - float(verdict.get('beyond', 1.0)))
    return shares


def _window(adapter: Adapter) -> tuple[int, int] | None:
    sliding = adapter.notes().get('sliding')
    return None if sliding is None else (int(sliding['window'][0]), int(sliding['window'][1]))


def _transforms(cfg: Config) -> list[Any]:
    loader = cfg.get('test_dataloader') or {}
    dataset = loader.get('dataset') or {}
    while 'dataset' in dataset:
        dataset = dataset['dataset']
    pipeline = dataset.get('pipeline') or cfg.get('test_pipeline') or []
    return [step for step in pipeline if 'Annotation' not in str(step['type'])]


def _run(cfg: Config, transforms: list[Any], path: str) -> Any:
    from mmengine.dataset import Compose
    from mmengine.registry import DefaultScope
    with DefaultScope.overwrite_default_scope(cfg.get('default_scope') or 'mmengine'):
        try:
            steps = Compose(transforms)
            packed = steps(dict(img_path=path, img_id=0, reduce_zero_label=False, seg_fields=[]))
        except KeyError as exc:
            raise ConfigError(f'the test pipeline needs more than a picture: {exc}') from exc
    if not isinstance(packed, dict) or not isinstance(packed.get('inputs'), Tensor):
        raise InputError('the test pipeline makes several pictures of one (test-time augmentation), which is not exported; '
                         'leave out --image, or give the config a plain test pipeline')
    return packed
