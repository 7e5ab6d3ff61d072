"""Turn command-line options into config overrides."""
from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from ..errors import ConfigError


def overrides(args: SimpleNamespace) -> dict[str, Any]:
    """Return command-line options as config overrides; ``--cfg-options`` has precedence, except over two ``--outputs``."""
    from ..backends import named_backends
    settings: dict[str, Any] = {}
    if args.backend:
        settings['export.backends'] = named_backends(args.backend)
    if args.shape:
        settings['export.inputs.shape'] = list(args.shape)
    if args.batch is not None:
        settings['export.inputs.batch'] = args.batch
    if getattr(args, 'image', None):
        settings['export.inputs.image'] = list(args.image)
    if getattr(args, 'accept_branch', None):
        settings['export.verify.accept_branches'] = list(args.accept_branch)
    options = parse_options(args.cfg_options)
    if args.outputs:
        names = any(option.startswith('export.outputs.') for option in options)
        settings['export.outputs.level' if names else 'export.outputs'] = args.outputs[0]
    both = {'export.outputs': list(args.outputs)} if len(args.outputs or ()) > 1 else {}
    return {**settings, **options, **both}


def parse_options(options: Sequence[str]) -> dict[str, Any]:
    """Parse ``k=v`` options, the value as mmengine's DictAction reads it.

    Raises:
        ConfigError: an option has no ``=``.
    """
    from mmengine.config import DictAction
    parsed: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition('=')
        if not equals:
            raise ConfigError(f'--cfg-options {option}: KEY=VALUE was expected')
        parsed[key] = DictAction._parse_iterable(value)
    return parsed
