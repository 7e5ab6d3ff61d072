"""Build and load the model of a config: in eval mode, on one device."""
from __future__ import annotations

import copy
import importlib.util
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..compat import check_packages, provide_mmcv_ext, provide_torchvision_ops
from ..compat.missing_loss import give_missing_losses
from ..compat.mmengine_errors import unknown_type
from ..errors import ConfigError, InputError, SetupError, suggestion
from ..utils.override import override
from .checkpoint import LoadReport, load_into, read_state_dict
from .config import PACKAGES
from .dataset_meta import dataset_meta
from .norms import without_process_group
from .predictor import predictor

if TYPE_CHECKING:
    from mmengine.config import Config


@dataclass(frozen=True)
class CheckpointOptions:
    """Hold the options of reading a checkpoint; see `mmexport.model.checkpoint.read_state_dict`."""

    ema: bool = False
    trust: bool = False
    allow_partial: bool = False


def load_model(cfg: Config, checkpoint: str | None, device: str | torch.device = 'cpu',
               options: CheckpointOptions | None = None) -> tuple[nn.Module, LoadReport | None]:
    """Build ``cfg.model`` without downloading anything, load `checkpoint` and move it to `device`; see `predictor`.

    Raises:
        SetupError: a package is missing, or `device` is not there.
        ConfigError: a type in the config is in no installed registry.
        CheckpointError: see `read_state_dict` and `load_into`.
    """
    device = check_device(device)
    options = options or CheckpointOptions()
    state = None if checkpoint is None else read_state_dict(checkpoint, options.ema, options.trust)
    model = build_model(cfg)
    fit = None if state is None else load_into(model, state, str(checkpoint), options.allow_partial, lambda: build_model(cfg))
    model = predictor(model)
    model.dataset_meta = dataset_meta(cfg, state.meta if state else {})  # type: ignore[assignment]
    model.to(device).eval()
    return model, fit


def build_model(cfg: Config) -> nn.Module:
    """Build ``cfg.model`` in eval mode, with plain BatchNorm for SyncBN (which refuses the CPU)."""
    check_packages()
    provide_mmcv_ext()
    provide_torchvision_ops()
    from mmengine.model import revert_sync_batchnorm
    from mmengine.registry import MODELS, DefaultScope
    scope = cfg.get('default_scope') or 'mmengine'
    _import_scope(scope)
    with DefaultScope.overwrite_default_scope(scope), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        try:
            # A copy: mmseg moves `pretrained` into the backbone's config, and then refuses to build from it again.
            model = MODELS.build(without_process_group(copy.deepcopy(cfg.model)))
        except KeyError as exc:
            unknown = unknown_type(exc)
            if unknown is None:
                raise ConfigError(f'the model cannot be built from this config: {exc}') from exc
            raise _unregistered(unknown, cfg.model, scope) from exc
        except (ImportError, ModuleNotFoundError) as exc:
            raise ConfigError(f'building the model needs what is not installed: {exc}') from exc
        except OSError as exc:
            raise ConfigError(f'the model reads a file while it is built, which failed: {type(exc).__name__}: {exc}. Leave it '
                              'out of the config (teacher_ckpt=None, pretrained=None) if the checkpoint has all weights') from exc
        except (TypeError, ValueError, AttributeError, AssertionError, RuntimeError) as exc:
            # Trackers and heads with text ask for their packages by a RuntimeError, backbones by a NotImplementedError.
            if isinstance(exc, RuntimeError) and re.search(r'\binstall(ed)?\b', str(exc)):
                raise ConfigError(f'building the model needs what is not installed: {" ".join(str(exc).split())}') from exc
            words = (str(exc).splitlines() or ['no reason given'])[0]
            raise ConfigError(f'the model cannot be built from this config: {type(exc).__name__}: {words}') from exc
    give_missing_losses(model)
    model = revert_sync_batchnorm(model)
    model.eval()  # LAD's returns None.
    return model


@contextmanager
def reading_no_weights() -> Iterator[None]:
    """Let models that read weights while they are built (LAD its teacher's, by a download) read none inside the block."""
    from mmengine.runner import checkpoint
    with override(checkpoint, '_load_checkpoint', lambda *_, **__: {}), \
            override(checkpoint, '_load_checkpoint_to_model', lambda *_, **__: {}):
        yield


def parse_device(name: str | torch.device, types: Sequence[str] = ('cpu', 'cuda')) -> torch.device:
    """Return the device of this name, whether it is here or not.

    Raises:
        InputError: it is none, or of another type than `types`.
    """
    try:
        device = torch.device(name)
    except RuntimeError as exc:
        raise InputError(f'--device {name}{suggestion(str(name), types)}: expected {", ".join((*types, "cuda:N"))}') from exc
    if device.type not in types:
        raise InputError(f'--device {name}: expected {", ".join((*types, "cuda:N"))}')
    return device


def check_device(device: str | torch.device) -> torch.device:
    """Return the device of this name, which must be here.

    Raises:
        InputError: it is none.
    """
    device = parse_device(device)
    if device.type == 'cuda':
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise SetupError(f'{device} was asked for, but torch {torch.__version__} sees {count} CUDA devices here; take --device cpu, or '
                             'install a torch with CUDA')
    return device


def _import_scope(scope: str) -> None:
    if scope == 'mmengine':
        return
    try:
        importlib.import_module(scope)
        importlib.import_module(f'{scope}.models')
    except ModuleNotFoundError as exc:
        missing = (exc.name or '').split('.')[0]
        remedy = PACKAGES.get(missing, f'pip install {missing}')
        raise SetupError(f'the config belongs to {scope}, which needs {missing}, and that is not installed: {remedy}') from exc


def _unregistered(exc: KeyError, model: Any, scope: str) -> InputError | SetupError:
    """Return the error for a type that no registry has: of a package that is named in the config and not installed, or the user's own."""
    reason = str(exc.args[0] if exc.args else exc).split('. Please')[0]
    named = [name for name in PACKAGES if name in _scopes(model) and name != scope]
    absent = [name for name in named if importlib.util.find_spec(name) is None]
    remedy = PACKAGES[(absent or named)[0]] if named else ("name the module that registers it in the config's custom_imports=dict("
                                                           "imports=['your.module']), with its folder on PYTHONPATH")
    return (SetupError if absent else ConfigError)(f'{reason}. No installed package has it: {remedy}')


def _scopes(model: Any) -> set[str]:
    """Return the scopes that types in a config are prefixed with, of ``mmpretrain.ConvNeXt`` mmpretrain."""
    if isinstance(model, (list, tuple)):
        return {scope for item in model for scope in _scopes(item)}
    if not isinstance(model, Mapping):
        return set()
    kind = model.get('type')
    own = {kind.partition('.')[0]} if isinstance(kind, str) and '.' in kind else set()
    return own | {scope for value in model.values() for scope in _scopes(value)}
