"""Read a checkpoint file to a state dict of CPU tensors. The keys are the model's own."""
from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ...errors import CheckpointError, similar_path
from . import unpickler

# What wrappers put before a module's own names: DataParallel and DDP, torch.compile.
_WRAPPERS = re.compile(r'^(module\.|_orig_mod\.)+')


@dataclass(frozen=True)
class StateDict:
    """Hold weights and their key in the file (``source``: ``state_dict``, ``model``, ``ema_state_dict``, ...)."""

    tensors: dict[str, torch.Tensor]
    source: str
    meta: dict[str, Any] = field(default_factory=dict)


def read_state_dict(path: str | Path, ema: bool = False, trust: bool = False, keep_half: bool = False) -> StateDict:
    """Read the weights of `path` on the CPU. They may be saved on any device, and nothing that the file brings is run.

    Args:
        ema: take the averaged weights, wherever the writer put them.
        trust: read a pickle with classes of its own (``--trust-checkpoint``); this can run code from the file.
        keep_half: leave half-precision weights as they are; else they become float32.

    Raises:
        CheckpointError: the file is not a checkpoint, is cut short, asks for a name that is refused, or has no weights.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f'{path}: no such file{similar_path(path)}')
    content = _read_safetensors(path) if path.suffix == '.safetensors' else _read_pickle(path, trust)
    if not isinstance(content, Mapping):
        raise CheckpointError(f'{path} holds a {type(content).__name__}, not a checkpoint: a dict with state_dict was expected')
    weights, source = _pick(dict(content), ema, path)
    if not all(isinstance(key, str) for key in weights):
        raise CheckpointError(f'{path} has keys under {source!r} that are no names; a state_dict was expected')
    tensors = {_WRAPPERS.sub('', key): _plain(value, keep_half) for key, value in weights.items()
               if isinstance(value, torch.Tensor)}
    if not tensors:
        raise CheckpointError(f'{path} holds no tensors under {source!r}; is it the checkpoint of a model?')
    meta = content.get('meta')
    return StateDict(tensors, source, dict(meta) if isinstance(meta, Mapping) else {})


def _read_safetensors(path: Path) -> Any:
    try:
        from safetensors.torch import load_file
    except ImportError as exc:
        raise CheckpointError(f'{path}: reading .safetensors needs: pip install safetensors') from exc
    try:
        return load_file(path, device='cpu')
    except Exception as exc:
        raise CheckpointError(f'{path} is not a safetensors file: {_one_line(exc)}') from exc


def _read_pickle(path: Path, trust: bool) -> Any:
    _refuse_other_files(path)
    reader: dict[str, Any] = {} if trust else {'pickle_module': unpickler}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            return torch.load(path, map_location='cpu', weights_only=False, **reader)
    except unpickler.RefusedName as exc:
        raise CheckpointError(f'{path} asks for {exc}, which weights do not need; nothing was run. If you trust who wrote it: '
                              '--trust-checkpoint') from exc
    except Exception as exc:
        raise CheckpointError(f'{path} cannot be read as a checkpoint (cut short, or another kind of file): '
                              f'{type(exc).__name__}: {_one_line(exc)}') from exc


def _refuse_other_files(path: Path) -> None:
    """Raise for files that torch.save does not write. A zip without ``data.pkl`` or of TorchScript is read in another way."""
    with path.open('rb') as file:
        begins = file.read(4)
    if begins != b'PK\x03\x04':
        if not begins.startswith(b'\x80'):
            raise CheckpointError(f'{path} cannot be read as a checkpoint: it is neither a zip file nor a pickle, which torch.save writes')
        return
    # By torch's own reader: Python's zipfile does not see an archive that is followed by 64 KiB of anything.
    try:
        names = {name.rsplit('/', 1)[-1] for name in torch._C.PyTorchFileReader(str(path)).get_all_records()}
    except RuntimeError as exc:
        raise CheckpointError(f'{path} is a zip file that torch cannot read (cut short?): {_one_line(exc)}') from exc
    if 'constants.pkl' in names:
        raise CheckpointError(f'{path} is a TorchScript file, not a checkpoint: give the .pth that it was exported from')
    if 'data.pkl' not in names:
        raise CheckpointError(f'{path} is a zip file without data.pkl, not a checkpoint: give a file that torch.save wrote')


def _pick(content: Mapping[str, Any], ema: bool, path: Path) -> tuple[Mapping[str, Any], str]:
    if ema:
        return _pick_ema(content, path)
    for key in ('state_dict', 'model', 'model_state_dict', 'state_dict_ema'):
        if isinstance(content.get(key), Mapping):
            return content[key], key
    return content, 'the file itself'


def _pick_ema(content: Mapping[str, Any], path: Path) -> tuple[Mapping[str, Any], str]:
    """Find the averaged weights.

    mmengine's EMAHook swaps the two before it saves (``_swap_ema_state_dict`` in mmengine/hooks/ema_hook.py), so in its files
    ``state_dict`` is the average and ``ema_state_dict``, known by its ``steps``, the plain weights. Others do not swap.
    """
    averaged = content.get('ema_state_dict')
    if isinstance(averaged, Mapping) and 'steps' in averaged and isinstance(content.get('state_dict'), Mapping):
        return content['state_dict'], 'state_dict (EMA, as mmengine saves it)'
    for key in ('ema_state_dict', 'state_dict_ema', 'model_ema', 'ema'):
        if isinstance(content.get(key), Mapping):
            return content[key], key
    raise CheckpointError(f'{path} holds no averaged weights (ema_state_dict); leave out --ema')


def _plain(value: torch.Tensor, keep_half: bool) -> torch.Tensor:
    value = value.detach()
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) and not keep_half else value


def _one_line(exc: Exception) -> str:
    return (str(exc).strip() or type(exc).__name__).splitlines()[0][:160]
