"""A real picture, as the config's own test pipeline makes it."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .adapters import Adapter
from .errors import ConfigError, InputError
from .inputs import photograph as stretched

if TYPE_CHECKING:
    from mmengine.config import Config


@dataclass(frozen=True)
class Photograph:
    """A picture for the lowered file, and the same for ``test_step``.

    Attributes:
        image: (1, 3, H, W), padded as the data_preprocessor pads; normalised unless the graph does that.
        img_shape: what of it is picture.
        packed: what the pipeline returned; None, and the picture merely stretched, where `reason` says why.
    """

    path: str
    image: Tensor
    img_shape: tuple[int, int]
    packed: Mapping[str, Any] | None = None
    reason: str | None = None


def read_photograph(cfg: Config, path: str, adapter: Adapter, device: torch.device, like: Tensor) -> Photograph:
    """Run the config's test pipeline and data_preprocessor on the file at `path`.

    A model that slides a window gets one window of the picture: there, sliding is the identity. Where the file takes one size only, or
    the config has no test pipeline, the picture is stretched to the size of `like`, the traced image.

    Raises:
        InputError: there is no picture, or the pipeline refuses it.
    """
    if not Path(path).is_file():
        raise InputError(f'--image {path}: no such file')
    if adapter.channels != 3:
        raise InputError(f'--image {path}: the model takes {adapter.channels} channels, a picture file has 3; leave it out')
    transforms = _transforms(cfg)
    fixed = any(side > 0 for axis, side in enumerate(adapter.guard.sides) if axis != 1)
    if fixed or not transforms:
        reason = 'the file takes one size only' if fixed else 'the config has no test pipeline'
        size = (int(like.shape[2]), int(like.shape[3]))
        return Photograph(path, stretched(path, size, adapter).to(device).expand(like.shape[0], -1, -1, -1).contiguous(), size,
                          reason=reason)
    packed = _one_window(_run(cfg, transforms, path), adapter.notes().get('sliding'))
    height, width = (int(side) for side in packed['data_samples'].metainfo['img_shape'][:2])
    data = adapter.model.data_preprocessor(  # type: ignore[operator]
        dict(inputs=[packed['inputs']], data_samples=[packed['data_samples'].clone()]), False)
    image = data['inputs'].to(device)
    if adapter.preprocess.inside:
        image = adapter.preprocess.undo(image)
        image[0, :, :height, :width] = packed['inputs'].to(image)
    return Photograph(path, image, (height, width), packed)


def _one_window(packed: dict[str, Any], sliding: Mapping[str, Any] | None) -> dict[str, Any]:
    if sliding is None:
        return packed
    height, width = sliding['window']
    crop = packed['inputs'][:, :height, :width]
    sample = packed['data_samples'].clone()
    sample.set_metainfo(dict(img_shape=tuple(crop.shape[1:])))
    return dict(inputs=crop.contiguous(), data_samples=sample)


def _transforms(cfg: Config) -> list[Any]:
    loader = cfg.get('test_dataloader') or {}
    dataset = loader.get('dataset') or {}
    while 'dataset' in dataset:
        dataset = dataset['dataset']
    pipeline = dataset.get('pipeline') or cfg.get('test_pipeline') or []
    return [step for step in pipeline if 'Annotation' not in str(step['type'])]


def _run(cfg: Config, transforms: list[Any], path: str) -> dict[str, Any]:
    from mmengine.dataset import Compose
    from mmengine.registry import DefaultScope
    with DefaultScope.overwrite_default_scope(cfg.get('default_scope') or 'mmengine'):
        try:
            steps = Compose(transforms)
            packed = steps(dict(img_path=path, img_id=0, reduce_zero_label=False, seg_fields=[]))
        except KeyError as exc:
            raise ConfigError(f'the test pipeline needs more than a picture: {exc}') from exc
        except Exception as exc:
            raise InputError(f'--image {path}: the test pipeline fails on it with {type(exc).__name__}: {str(exc)[:160]}') from exc
    if not isinstance(packed, dict) or not isinstance(packed.get('inputs'), Tensor):
        raise InputError('the test pipeline makes several pictures of one (test-time augmentation), which is not exported; '
                         'leave out --image, or give the config a plain test pipeline')
    return packed
