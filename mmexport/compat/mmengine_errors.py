"""Distinguish errors of mmengine by where they are raised.

Tried on mmengine 0.10.7 (``mmengine/registry/build_functions.py``, ``mmengine/config/config.py``).
"""
from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from importlib.util import find_spec

from ..errors import causes


def unknown_type(exc: BaseException) -> KeyError | None:
    """Return the registry's error about a type that it does not have; None for other errors."""
    return next((cause for cause in causes(exc) if isinstance(cause, KeyError) and _raised_in(cause, 'mmengine/registry/')), None)


def missing_package(exc: BaseException, packages: Iterable[str]) -> str | None:
    """Return which of `packages` a config failed without; None for other errors.

    An import names its module (``ImportError.name``). For ``_base_ = 'mmdet::...'`` mmengine raises an error of its own that has the
    package in its text only.
    """
    absent = [package for package in packages if find_spec(package) is None]
    for cause in causes(exc):
        name = (getattr(cause, 'name', None) or '').partition('.')[0]
        text = str(cause) if not name and _raised_in(cause, 'mmengine/config/') else name
        for package in absent:
            # The package of mmaction is mmaction2.
            if re.search(rf'\b{package}2?\b', text):
                return package
    return None


def _raised_in(exc: BaseException, folder: str) -> bool:
    frames = traceback.extract_tb(exc.__traceback__)
    return bool(frames) and folder in frames[-1].filename.replace('\\', '/')
