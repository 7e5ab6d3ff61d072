"""Read any OpenMMLab config and the optional ``export`` section in it."""
from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compat import check_packages, provide_mmcv_ext, provide_torchvision_ops
from ..compat.fork_configs import configs_of_forks
from ..compat.mmengine_errors import missing_package
from ..errors import ConfigError, SetupError, suggestion
from .values import check_values

if TYPE_CHECKING:
    from mmengine.config import Config

# The package of each registry scope, for the message about a type that is in no registry.
PACKAGES = {'mmdet': "pip install 'mmexport[det]'", 'mmseg': "pip install 'mmexport[seg]'", 'mmpretrain': 'pip install mmpretrain',
            'mmcls': 'pip install mmpretrain', 'mmpose': 'pip install mmpose', 'mmaction': 'pip install mmaction2'}

LEVELS = ('final', 'raw')
NAMES = (None, 'mmdeploy')
MASKS = ('crop', 'paste')
DEFAULTS: dict[str, Any] = dict(
    backends=[dict(type='TorchScript')],
    task=None,
    outputs='final',
    inputs=dict(shape=None, batch=None, dynamic=('batch', 'height', 'width'), normalize=False, image=None, img_shape=False),
    patches='auto',
    verify=dict(shapes=None, batch=None, tolerance=dict(scale=1e-4), noises=3, accept_branches=()),
)


def load_config(path: str | Path, options: dict[str, Any] | None = None) -> Config:
    """Read a config of mmdet, mmseg, mmexport or a user's project, with its ``custom_imports``.

    Raises:
        ConfigError: the file is missing, cannot be run, or imports what is not installed; the message names it.
    """
    from mmengine.config import Config
    # A config may import mmcv.ops itself, by custom_imports=['mmdet.models'].
    check_packages()
    path = _installed(str(path)) if '::' in str(path) else Path(path)
    if not path.is_file():
        beside = [str(file) for file in path.parent.glob('*.py')] if path.parent.is_dir() else []
        raise ConfigError(f'{path}: no such config file{suggestion(str(path), beside)}')
    provide_mmcv_ext()
    provide_torchvision_ops()
    try:
        with configs_of_forks():
            cfg = Config.fromfile(path)
    except (ImportError, ModuleNotFoundError) as exc:
        _refuse_missing_package(path, exc)
        raise ConfigError(f'{path} imports what is not there: {_first_cause(exc)}. Install it, or put its folder on PYTHONPATH: a '
                          'name in custom_imports is imported from there') from exc
    except Exception as exc:
        _refuse_missing_package(path, exc)
        raise ConfigError(f'{path} cannot be read as a config: {type(exc).__name__}: {exc}') from exc
    if 'model' not in cfg:
        raise ConfigError(f'{path} has no model; a config of mmdet or mmseg was expected')
    if 'export' not in cfg and (close := get_close_matches('export', [str(key) for key in cfg], 1, 0.8)):
        raise ConfigError(f'{path.name} has a section {close[0]!r}, which nothing reads (did you mean export?)')
    if options:
        _refuse_misspelt_section(path, cfg, options)
        try:
            cfg.merge_from_dict(options)
        except (KeyError, TypeError, IndexError) as exc:
            raise ConfigError(f'an override does not fit {path.name}: {exc}') from exc
    return cfg


def _refuse_misspelt_section(path: Path, cfg: Config, options: dict[str, Any]) -> None:
    """Raise for an override like ``exprt.outputs=raw``. It would make a section of its own that nothing reads."""
    for key in options:
        section = key.partition('.')[0]
        if section not in (*cfg, 'export') and (close := get_close_matches(section, ['export', *map(str, cfg)], 1, 0.8)):
            raise ConfigError(f'--cfg-options {key}: {path.name} has no section {section!r} (did you mean {close[0]}?)')


def _installed(name: str) -> Path:
    """Return the file of ``mmdet::retinanet/...py``, a config of an installed package."""
    from importlib.util import find_spec
    package, _, relative = name.partition('::')
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SetupError(f'{name}: {package} is not installed: {PACKAGES.get(package, f"pip install {package}")}')
    return Path(spec.origin).parent / '.mim' / 'configs' / relative


def _refuse_missing_package(path: Path, exc: BaseException) -> None:
    """Raise a SetupError if a config fails because a package of OpenMMLab is not installed."""
    if package := missing_package(exc, PACKAGES):
        raise SetupError(f'{path} needs {package}, which is not installed: {PACKAGES[package]}') from exc


def export_section(cfg: Config) -> dict[str, Any]:
    """Return the ``export`` section merged over the defaults.

    Raises:
        ConfigError: a key is unknown, so that a misspelt one is not silently without effect.
    """
    user_section = cfg.get('export', {})
    user_section = user_section.to_dict() if hasattr(user_section, 'to_dict') else dict(user_section)
    section: dict[str, Any] = {}
    _refuse_unknown('export', user_section, DEFAULTS)
    for key, default in DEFAULTS.items():
        value = user_section.get(key, default)
        if isinstance(default, dict):
            _refuse_unknown(f'export.{key}', value, default)
            value = {**default, **value}
            for name in (name for name, inside in default.items() if isinstance(inside, dict)):
                _refuse_unknown(f'export.{key}.{name}', value[name], default[name])
                value[name] = {**default[name], **value[name]}
        section[key] = value
    check_values(section)
    section['names'], section['masks'] = _details_of_outputs(section)
    levels_of(section)
    return section


def _details_of_outputs(section: dict[str, Any]) -> tuple[str | None, str]:
    """Replace ``outputs=dict(level=..., names=..., masks=...)`` by the level, and return the names and the kind of masks.

    Raises:
        ConfigError: they are not known.
    """
    outputs = section['outputs']
    if not isinstance(outputs, dict):
        return None, MASKS[0]
    _refuse_unknown('export.outputs', outputs, dict(level='final', names=None, masks=MASKS[0]))
    section['outputs'], names, masks = outputs.get('level', 'final'), outputs.get('names'), outputs.get('masks', MASKS[0])
    if names not in NAMES:
        raise ConfigError(f"export.outputs.names is {names!r}{suggestion(str(names), ['mmdeploy'])}; it can be 'mmdeploy', or left out")
    if masks not in MASKS:
        raise ConfigError(f"export.outputs.masks is {masks!r}{suggestion(str(masks), MASKS)}; it can be 'crop' or 'paste'")
    return names, masks


def levels_of(section: dict[str, Any]) -> tuple[str, ...]:
    """Return the levels of outputs that are asked for, each once.

    Raises:
        ConfigError: there is another one among them, or none.
    """
    outputs = section['outputs']
    levels = tuple(dict.fromkeys([outputs] if isinstance(outputs, str) else outputs))
    if not levels or any(level not in LEVELS for level in levels):
        close = suggestion(str(next((level for level in levels if level not in LEVELS), '')), LEVELS)
        raise ConfigError(f"export.outputs is {outputs!r}{close}; it can be 'final', 'raw', or both")
    return levels


def _refuse_unknown(where: str, section: Any, known: dict[str, Any]) -> None:
    if not isinstance(section, dict):
        raise ConfigError(f'{where} is {section!r}; a dict was expected, with {", ".join(known)}')
    unknown = sorted(set(section) - set(known))
    if unknown:
        raise ConfigError(f"{where} has no key {unknown[0]!r}{suggestion(unknown[0], known)}; it has {', '.join(known)}")


def _first_cause(exc: BaseException) -> str:
    """Return the first line of the innermost cause: mmengine reports a failed import with all of sys.path."""
    while exc.__cause__ or exc.__context__:
        exc = exc.__cause__ or exc.__context__  # type: ignore[assignment]
    return str(exc).splitlines()[0]
