"""Check at start for packages that pip cannot resolve.

``mmcv`` and ``mmcv-lite`` install the same folder and overwrite each other, so neither can be a requirement; mmdet 3.3 refuses
mmcv 2.2 at import with a bare AssertionError.
"""
from __future__ import annotations

import importlib.util
from importlib import metadata

from ..errors import SetupError
from .pairs import PAIRS, known_incompatible

# The maintained fork of mmcv, with the same import name; its mmdet and mmseg are onedl-mmdetection and onedl-mmsegmentation.
FORK = 'onedl-mmcv'
REMEDY = "pip install 'mmcv-lite>=2.0,<2.2' (no compiled ops), or mim install 'mmcv>=2.0,<2.2'"


def distribution_version(name: str) -> str | None:
    """Return the version of the distribution `name`, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def mmcv_distribution() -> tuple[str, str]:
    """Return name and version of the installed mmcv.

    Raises:
        SetupError: there is none, there are both, or the version is outside 2.0 <= v < 2.2.
    """
    installed = {name: version for name in ('mmcv', 'mmcv-lite', FORK) if (version := distribution_version(name))}
    if not installed:
        raise SetupError(f'mmcv is not installed: {REMEDY}')
    if len(installed) > 1:
        raise SetupError(f'{" and ".join(installed)} are both installed and overwrite each other: pip uninstall -y {" ".join(installed)}, '
                         f'then {REMEDY}')
    name, version = next(iter(installed.items()))
    if name != FORK and tuple(int(part) for part in version.split('.')[:2]) not in ((2, 0), (2, 1)):
        raise SetupError(f'{name} {version} is installed, but mmdet 3.3 and mmseg 1.2 need 2.0 <= mmcv < 2.2: pip uninstall -y '
                         f'{name}, then {REMEDY}')
    return name, version


def installed_version(package: str) -> str | None:
    """Return the version of the distribution that has `package` (ONNX Runtime has several), or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        if importlib.util.find_spec(package) is None:
            return None
        return ', '.join(f'{name} {metadata.version(name)}' for name in sorted(set(metadata.packages_distributions().get(package, ()))))


def check_packages() -> None:
    """Raise early, with the remedy, if importing OpenMMLab would fail later.

    Raises:
        SetupError: a package is missing, or two do not work together in their versions.
    """
    mmcv_distribution()
    names = {name for pair in PAIRS for name, *_ in (pair.first, pair.second)}
    versions = {name: version for name in names if (version := distribution_version(name))}
    for pair in known_incompatible(versions):
        one, other = pair.first[0], pair.second[0]
        if pair.stops:
            raise SetupError(f'{one} and {other} do not go together in the installed versions ({versions[one]} and {versions[other]}): '
                             f'{pair.effect}. Remedy: {pair.remedy}')
    if importlib.util.find_spec('pkg_resources') is None:
        raise SetupError("mmengine needs pkg_resources, which setuptools 81 and later no longer has: pip install 'setuptools<81'")
