"""Let mmengine find configs of a package whose distribution has another name.

mmengine finds ``mmseg::fcn/...py`` in the distribution named mmsegmentation (``MODULE2PACKAGE`` in mmengine/config/utils.py); so does
onedl-mmengine 0.10.12, though its mmseg is of onedl-mmsegmentation. Checked with that and with mmengine 0.10.7.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from .packages import distribution_version


@contextmanager
def configs_of_forks() -> Iterator[None]:
    """Find the configs of a package in the distribution that has it, inside the block."""
    from mmengine.config.utils import MODULE2PACKAGE
    before = dict(MODULE2PACKAGE)
    MODULE2PACKAGE.update(_forks(before))
    try:
        yield
    finally:
        MODULE2PACKAGE.update(before)


def _forks(names: dict[str, str]) -> dict[str, str]:
    """Return for each module of `names` whose distribution is missing the one that has it instead."""
    missing = {module for module, name in names.items() if distribution_version(name) is None}
    return {module: owners[0] for module, owners in metadata.packages_distributions().items() if module in missing} if missing else {}
