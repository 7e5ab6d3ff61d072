"""Compose the manifest of a lowered file."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..adapters import Adapter
from ..adapters.guard import InputGuard
from ..adapters.specs import InputSpec
from ..branches import Branches
from ..checker.foreign import SCHEMA
from ..inputs.real_image import transforms_of
from ..patching import Applied

if TYPE_CHECKING:
    from mmengine.config import Config

NOTHING = Branches()


def resize_rule(cfg: Config) -> dict[str, Any] | None:
    """Return what the test pipeline's Resize does before the normalisation; None if it has none."""
    for step in transforms_of(cfg):
        if str(step['type']).endswith('Resize'):
            # mmcv's own default of the last one.
            return {**{key: step[key] for key in ('type', 'scale', 'scale_factor', 'keep_ratio') if key in step},
                    'interpolation': step.get('interpolation', 'bilinear')}
    return None


def pad_rule(cfg: Config) -> dict[str, Any] | None:
    """Return what the test pipeline's Pad adds at right and bottom, before the normalisation; None if it has none.

    The data_preprocessor pads after it, if at all. Source: mmcv/transforms/processing.py (``Pad``).
    """
    for step in transforms_of(cfg):
        # Not RandomCenterCropPad, which centres the picture.
        if str(step['type']).rpartition('.')[2] == 'Pad':
            value = step.get('pad_val', 0)
            return {**{key: step[key] for key in ('type', 'size', 'size_divisor', 'pad_to_square', 'padding_mode') if key in step},
                    'value': value.get('img', 0) if isinstance(value, dict) else value, 'when': 'before the normalisation'}
    return None


def _acted(applied: Sequence[Applied]) -> list[str]:
    """Return the names of the patches that the model called; of all that are applied where it was not run with them before lowering."""
    applied = [row for row in applied if row.skipped is None]
    return [row.name for row in applied if row.acted] or [row.name for row in applied]


def _described(spec: InputSpec, tensor: Tensor, guard: InputGuard) -> dict[str, Any]:
    """Return the description of one input; sizes are declared of the axes that it has."""
    sides = dict(multiple_of=guard.multiple_of, minimum=guard.minimum, fixed=guard.fixed_sides) if 'height' in spec.axes else {}
    return dict(name=spec.name, dtype=spec.dtype, axes=list(spec.axes), traced=list(tensor.shape),
                dynamic=[name for name in (*guard.dynamic, *spec.ranges) if name in spec.axes],
                ranges={name: list(limits) for name, limits in guard.ranges.items() if name in spec.axes}, **sides)


def describe(adapter: Adapter, example: Tensor, applied: Sequence[Applied], versions: dict[str, Any], cfg: Config,
             checkpoint: str | None, branches: Branches = NOTHING) -> dict[str, Any]:
    """Return inputs, outputs, dtypes, dynamic axes, preprocessing, classes and versions, as plain JSON-able data.

    Args:
        branches: of the model; those that no input verified and the user answers for, and sizes that could not be followed, are named.
    """
    guard, meta = adapter.guard, getattr(adapter.model, 'dataset_meta', None) or {}
    return dict(
        mmexport=SCHEMA, task=adapter.task, outputs_of=adapter.outputs,
        inputs=[_described(spec, tensor, guard) for spec, tensor in zip(adapter.input_specs, adapter.inputs_of(example), strict=True)],
        outputs=[spec.as_dict() for spec in adapter.specs], choices=list(adapter.choices),
        num_classes=adapter.num_classes, classes=adapter.classes, palette=meta.get('palette'),
        preprocessing={**adapter.preprocess.describe(), 'resize': resize_rule(cfg), 'pad': pad_rule(cfg)}, **adapter.notes(),
        config=Path(str(cfg.filename)).name, checkpoint=None if checkpoint is None else Path(checkpoint).name,
        patches=_acted(applied), accepted_branches=[f'{site.place}: {site.text}' for site in branches.accepted],
        not_followed=[f'{site.place}: {site.text}' for site in branches.escaped],
        lowered_on=str(example.device), versions=versions)
