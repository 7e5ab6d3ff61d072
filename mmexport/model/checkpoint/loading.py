"""Load a state dict into a model, and count and name every difference."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from ...errors import CheckpointError
from .reading import StateDict

# More than this share of missing keys means a checkpoint of another config.
MAX_MISSING = 0.01
# Heads that only training has.
TRAINING_ONLY = ('auxiliary_head', 'loss')


@dataclass(frozen=True)
class LoadReport:
    """Hold how a checkpoint fitted a model; the lists hold key names."""

    source: str
    expected: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    misshaped: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def load_into(model: nn.Module, state: StateDict, name: str, allow_partial: bool = False,
              rebuild: Callable[[], nn.Module] | None = None) -> LoadReport:
    """Copy `state` into `model`; `name` is the checkpoint's, for messages.

    Args:
        rebuild: builds the model anew, to distinguish a buffer that the constructor computes from one that was learned.

    Raises:
        CheckpointError: weights that inference reads are missing or have another shape (a classifier of another number of classes is
            two keys of hundreds, and leaves the model with random ones), or 1% of all keys; and `allow_partial` is off.
    """
    model_state = model.state_dict()
    # Old versions of torch do not write num_batches_tracked, and inference never reads it.
    expected_keys = {key for key in model_state if not key.endswith('num_batches_tracked')}
    shapes = {key: f'{key}: {tuple(state.tensors[key].shape)} in the file, {tuple(model_state[key].shape)} in the model'
              for key in sorted(model_state) if key in state.tensors and state.tensors[key].shape != model_state[key].shape}
    misshaped, missing = tuple(shapes.values()), tuple(sorted(expected_keys - state.tensors.keys()))
    unexpected = tuple(sorted(state.tensors.keys() - model_state.keys()))
    report = LoadReport(state.source, len(expected_keys), missing, unexpected, misshaped)
    lost = len(missing) + len(misshaped)
    lines = {**{key: key for key in missing}, **shapes}
    buffers = _computed(model, set(lines), rebuild)
    needed = tuple(line for key, line in lines.items() if _is_read(key, buffers))
    if (needed or lost > MAX_MISSING * len(expected_keys)) and not allow_partial:
        first = (needed or missing or misshaped)[0]
        raise CheckpointError(
            f'{name} has {len(expected_keys) - lost} of {len(expected_keys)} keys of {type(model).__name__} ({len(missing)} missing, '
            f'{len(misshaped)} of another shape, {len(unexpected)} unexpected); is it for another config? First: {first}. '
            + ('Nothing of it can be loaded' if lost == len(expected_keys) else 'To load it all the same: --allow-partial'))
    model.load_state_dict({key: value for key, value in state.tensors.items()
                           if key in model_state and value.shape == model_state[key].shape}, strict=False)
    return report


def _computed(model: nn.Module, keys: set[str], rebuild: Callable[[], nn.Module] | None) -> set[str]:
    """Return the buffers of `keys` that the model works out by itself: whole numbers, and tables that every build fills alike.

    A buffer that holds one value throughout is counted as learned: training may have been meant to fill it.
    """
    buffers = {key: buffer for key, buffer in model.named_buffers() if key in keys}
    whole = {key for key, buffer in buffers.items() if not buffer.is_floating_point()}
    tables = {key for key, buffer in buffers.items() if key not in whole and buffer.unique().numel() > 1}
    if not tables or rebuild is None:
        return whole
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(54321)
        rebuilt = dict(rebuild().named_buffers())
    return whole | {key for key in tables if key in rebuilt and torch.equal(rebuilt[key], buffers[key].to(rebuilt[key]))}


def _is_read(key: str, computed: set[str]) -> bool:
    """Return whether inference reads `key` from the checkpoint. The model computes some tensors itself, as a table of positions."""
    parts = key.split('.')
    return not any(part.startswith(TRAINING_ONLY) for part in parts) and key not in computed
