"""Turn command-line options into config overrides."""
from __future__ import annotations

import ast
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from ..errors import ConfigError, last_line


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
    """Parse ``k=v`` options.

    Raises:
        ConfigError: an option has no ``=``, or its value cannot be read.
    """
    parsed: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition('=')
        if not equals:
            raise ConfigError(f'--cfg-options {option}: KEY=VALUE was expected')
        try:
            parsed[key] = _value(value)
        except (ValueError, SyntaxError, RecursionError, AssertionError) as exc:
            raise ConfigError(f'--cfg-options {option}: the value cannot be read ({last_line(exc)}); expected a number, a word, a list, or '
                              "a dict as in Python: \"dict(scale=1e-4)\"") from exc
    return parsed


def _value(text: str) -> Any:
    """Return a value as mmengine's DictAction reads it; dicts, which it does not know, as Python does."""
    from mmengine.config import DictAction
    if 'dict(' not in text and '{' not in text:
        return DictAction._parse_iterable(text)
    return _literal(ast.parse(text.strip(), mode='eval').body)


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == 'dict' and not node.args:
        return {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords}
    if isinstance(node, (ast.List, ast.Tuple)):
        values = [_literal(element) for element in node.elts]
        return values if isinstance(node, ast.List) else tuple(values)
    if isinstance(node, ast.Dict):
        return {ast.literal_eval(key): _literal(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None}
    return ast.literal_eval(node)
