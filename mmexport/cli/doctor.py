"""Describe the environment: versions, compiled ops, formats, incompatible pairs, GPU."""
from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from . import options as opt


@opt.command('doctor', ('mmexport doctor',), short_help='Describe this environment: versions, formats, GPU.')
@opt.debug
def command(args: SimpleNamespace) -> int:
    """Print what an export depends on. These are versions, compiled ops of mmcv, formats that can be made here, known incompatible
    packages with the remedy, and whether a GPU is visible. Exit code 0 an export can run, 3 a required package is missing,
    or two installed packages are known not to work together."""
    return doctor()


def doctor() -> int:
    """Print the description; return 0, or 3 where a package is missing or two do not work together."""
    from ..errors import SetupError
    from .printing import print_lines
    problems = list(_problems())
    # Without torch nothing else can be asked.
    details = ['', *_ops(), *_gpu(), '', *_formats()] if 'torch' in installed() else []
    print_lines([*_versions(), *_tried(), *details])
    if problems:
        print_lines(['', *problems])
    return SetupError.exit_code if problems else 0


def installed() -> dict[str, str]:
    """Return name and version of the distributions that matter here, of those that are installed."""
    from importlib.util import find_spec

    from ..compat.packages import distribution_version
    formats: list[str] = []
    tasks: list[str] = []
    if find_spec('torch') is not None:
        from ..adapters import task_packages
        from ..backends.building import format_packages
        formats, tasks = format_packages(), task_packages()
    names = ('torch', 'torchvision', 'mmengine', 'mmcv', 'mmcv-lite', *tasks, 'numpy', 'setuptools', 'onnxruntime-gpu', 'tensorrt',
             'safetensors', 'ray', *formats)
    return {name: version for name in names if (version := distribution_version(name))}


def _versions() -> Iterator[str]:
    import os
    import platform

    from .. import __version__
    yield f"{'mmexport':<20}{__version__}"
    yield f"{'Python':<20}{platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    yield from (f'{name:<20}{version}' for name, version in installed().items())


def _tried() -> Iterator[str]:
    import platform

    from ..compat.tried import tried_in_words
    versions = installed()
    if version := versions.get('torch'):
        python = '.'.join(platform.python_version_tuple()[:2])
        yield f"{'this torch':<20}{tried_in_words(version, python, versions.get('numpy', 'none'))}"


def _ops() -> Iterator[str]:
    import sys

    from ..compat import provide_mmcv_ext
    from ..compat.mmcv_ext import NAME, built_for, reference_kernels
    from ..errors import SetupError
    try:
        compiled = provide_mmcv_ext() == 'compiled'
    except SetupError:  # There is no usable mmcv; that is one of the problems below.
        return
    if not compiled:
        yield (f"{'mmcv ops':<20}not compiled: models run and export without them, on kernels of mmexport's own for "
               f"{', '.join(sorted(reference_kernels()))}")
        return
    missing = [name for name in sorted(reference_kernels()) if not hasattr(sys.modules[NAME], name)]
    yield f"{'mmcv ops':<20}compiled" + (f', without {", ".join(missing)}' if missing else '') + f' ({built_for()})'


def _gpu() -> Iterator[str]:
    import torch
    if torch.cuda.is_available():
        names = ', '.join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
        yield f"{'GPU':<20}{names} (CUDA {torch.version.cuda})"
    else:
        built = f'torch is built for CUDA {torch.version.cuda}' if torch.version.cuda else 'torch is built for the CPU'
        yield f"{'GPU':<20}none visible; {built}"


def _formats() -> Iterator[str]:
    """Yield each format, and why it cannot be made here."""
    from ..backends.building import availability
    from ..utils.line import Line
    for name, reason in availability().items():
        yield Line(f'{name:<20}' + ('available' if reason is None else f'not available: {reason}'), 'green' if reason is None else 'yellow')


def _problems() -> Iterator[str]:
    """Yield missing packages, and pairs that are known not to work together."""
    from ..compat import check_packages
    from ..compat.pairs import known_incompatible
    from ..errors import SetupError
    from ..utils.line import Line
    if 'torch' not in installed():
        yield Line('missing: torch: pip install torch', 'red')
        return
    pairs: list[Any] = known_incompatible(installed())
    for pair in pairs:
        yield Line(f'incompatible: {pair.first[0]} and {pair.second[0]}: {pair.effect}. Remedy: {pair.remedy}', 'red')
    try:
        check_packages()
    except SetupError as exc:
        if not pairs:
            yield Line(f'missing: {exc}', 'red')
