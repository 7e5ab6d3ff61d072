"""Read photographs by the config's own test pipeline.

``chelsea.png``: Chelsea the cat, 451 x 300, by Stefan van der Walt, CC0 1.0 (public domain), copied unchanged from scikit-image, whose
docstring of ``skimage.data.chelsea`` names photographer and licence. It lies in the package so that every run has a photograph.
"""
from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..errors import ConfigError, InputError
from .size_rules import SizeRules
from .synthetic import photograph as stretched

if TYPE_CHECKING:
    from mmengine.config import Config

PACKAGED = Path(__file__).with_name('chelsea.png')
PHOTOGRAPH = 'photograph'
ENDINGS = ('.png', '.jpg', '.jpeg', '.bmp', '.tif', '.tiff', '.webp')
NAME_LENGTH = 15


@dataclass(frozen=True)
class Photograph:
    """Hold a picture as input of the file, and the same as input of ``test_step``.

    Attributes:
        image: (1, C, H, W), padded as the data_preprocessor pads; normalised unless the graph does that.
        img_shape: what of it is picture.
        packed: what the pipeline returned; None, and the picture merely stretched, where `reason` says why.
    """

    path: str
    image: Tensor
    img_shape: tuple[int, int]
    packed: Mapping[str, Any] | None = None
    reason: str | None = None

    @property
    def padding(self) -> tuple[int, int]:
        return int(self.image.shape[2]) - self.img_shape[0], int(self.image.shape[3]) - self.img_shape[1]


def picture_files(paths_given: str | Sequence[str] | None) -> dict[str, str]:
    """Return path by sample name for files and folders of pictures, in order.

    Raises:
        InputError: a path does not exist, or a folder has no picture.
    """
    paths: list[Path] = []
    for entry in [paths_given] if isinstance(paths_given, (str, Path)) else paths_given or ():
        path = Path(entry)
        inside = sorted(file for file in path.iterdir() if file.suffix.lower() in ENDINGS) if path.is_dir() else [path]
        if not inside:
            raise InputError(f'--image {entry}: the folder has no picture ({", ".join(ENDINGS)})')
        if not path.exists():
            raise InputError(f'--image {entry}: no such file')
        paths += inside
    files: dict[str, str] = {}
    for path in paths:
        # The ending keeps them apart from the inputs that are made here ("traced", "photograph", "128x160").
        ending = path.suffix or '.'
        name, number = path.stem[:NAME_LENGTH] + ending, 2
        while name in files:
            name, number = f'{path.stem[:NAME_LENGTH - 3]} {number}{ending}', number + 1
        files[name] = str(path)
    return files


def read_photograph(cfg: Config, path: str, adapter: Adapter, device: torch.device, like: Tensor, rules: SizeRules | None = None,
                    size: Sequence[int] | None = None) -> Photograph:
    """Run the config's test pipeline and data_preprocessor on the file at `path`.

    A model that slides a window gets one window of the picture: there, sliding is the identity. Where the file takes one size only, or
    the config has no test pipeline, or eager does not take the size that the pipeline makes, the picture is stretched to a size that is
    taken, that of `like` (the traced image) or the next one.

    Args:
        size: (H, W) that the pipeline's Resize is set to, instead of its own scale.

    Raises:
        InputError: there is no picture, or the pipeline refuses it.
    """
    rules = rules or SizeRules()
    if not Path(path).is_file():
        raise InputError(f'--image {path}: no such file')
    transforms = transforms_of(cfg)
    fixed = rules.fixed or adapter.guard.fixed
    if fixed or not transforms:
        reason = 'the file takes one size only' if fixed else 'the config has no test pipeline'
        return _stretched(path, (int(like.shape[2]), int(like.shape[3])), adapter, device, like, reason)
    packed = _one_window(_run(cfg, _resized(transforms, size), path), adapter.notes().get('sliding'))
    if packed['inputs'].shape[0] != adapter.channels:
        raise InputError(f"--image {path}: the test pipeline reads {packed['inputs'].shape[0]} channels, and the model takes "
                         f'{adapter.channels} channels; leave it out, or let the pipeline read them')
    height, width = (int(side) for side in packed['data_samples'].metainfo['img_shape'][:2])
    data = adapter.model.data_preprocessor(  # type: ignore[operator]
        dict(inputs=[packed['inputs']], data_samples=[packed['data_samples'].clone()]), False)
    image = data['inputs'].to(device)
    if not rules.takes(*image.shape[2:]):
        reason = f'the model takes multiples of {rules.multiple_of}, from {rules.minimum} on, and the test pipeline makes {height}x{width}'
        return _stretched(path, (rules.up(image.shape[2]), rules.up(image.shape[3])), adapter, device, like, reason)
    if adapter.preprocess.inside:
        image = adapter.preprocess.undo(image)
        image[0, :, :height, :width] = packed['inputs'].to(image)
    return Photograph(path, image, (height, width), packed)


def pipeline_scale(cfg: Config) -> tuple[int, int] | None:
    """Return the (H, W) that the test pipeline's first Resize names; None where it names none."""
    for step in transforms_of(cfg):
        scale = step.get('scale')
        if str(step['type']).endswith('Resize') and isinstance(scale, (tuple, list)) and len(scale) == 2 and all(
                isinstance(side, int) and side > 0 for side in scale):
            return int(scale[1]), int(scale[0])
    return None


def _stretched(path: str, size: tuple[int, int], adapter: Adapter, device: torch.device, like: Tensor, reason: str) -> Photograph:
    if adapter.channels != 3:
        raise InputError(f'--image {path}: the model takes {adapter.channels} channels, and a picture file is read with 3 where {reason}; '
                         'leave it out')
    image = stretched(path, size, adapter).to(device)
    # A file whose batch is fixed takes no other.
    batch = int(like.shape[0]) if adapter.guard.fixed_batch else 1
    return Photograph(path, image.expand(batch, -1, -1, -1).contiguous(), size, reason=reason)


def _one_window(packed: dict[str, Any], sliding: Mapping[str, Any] | None) -> dict[str, Any]:
    if sliding is None:
        return packed
    height, width = sliding['window']
    crop = packed['inputs'][:, :height, :width]
    sample = packed['data_samples'].clone()
    sample.set_metainfo(dict(img_shape=tuple(crop.shape[1:])))
    return dict(inputs=crop.contiguous(), data_samples=sample)


def transforms_of(cfg: Config) -> list[Any]:
    """Return the steps of the config's test pipeline that a picture alone goes through."""
    loader = cfg.get('test_dataloader') or {}
    dataset = loader.get('dataset') or {}
    while 'dataset' in dataset:
        dataset = dataset['dataset']
    pipeline = dataset.get('pipeline') or cfg.get('test_pipeline') or []
    return [step for step in pipeline if 'Annotation' not in str(step['type'])]


def _resized(transforms: list[Any], size: Sequence[int] | None) -> list[Any]:
    if size is None:
        return transforms
    steps = copy.deepcopy(transforms)
    for step in steps:
        if str(step['type']).endswith('Resize') and 'scale' in step:
            step.update(scale=(int(size[1]), int(size[0])), keep_ratio=False)
            break
    return steps


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
