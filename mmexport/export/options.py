"""Check the options of an export before minutes go into its model."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..adapters import check_task
from ..errors import ConfigError
from ..inputs.real_image import picture_files
from ..inputs.shapes import plan_shapes
from ..inputs.size_rules import SizeRules
from ..patching import resolve
from .staging import check_work_dir


def check_options(section: Mapping[str, Any], work_dir: Path, shape: Any) -> None:
    """Raise for an ``export`` section that cannot be followed; nothing is loaded for it.

    Raises:
        ConfigError: a patch, a size or the place of a branch is wrong.
        UnsupportedModelError: the task is not registered.
        InputError: a picture is missing, or the work dir holds another project's files.
    """
    check_work_dir(work_dir)
    check_task(section['task'])
    resolve(section['patches'])
    picture_files(section['inputs']['image'])
    plan_shapes(shape, section, SizeRules())
    for place in section['verify']['accept_branches']:
        file, _, line = str(place).rpartition(':')
        if not file or not line.isdecimal():
            raise ConfigError(f'--accept-branch {place} (export.verify.accept_branches): expected FILE:LINE, as in a report')
