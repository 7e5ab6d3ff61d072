"""Make the environments of `matrix.py`: other versions of torch, numpy, Python and OpenMMLab's packages."""
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from common import ROOT


@dataclass(frozen=True)
class Environment:
    """Hold the versions that pip installs; the rest is that of requirements/lock.txt and formats.txt."""

    name: str
    torch: str
    numpy: str
    python: str = '3.11'
    packages: tuple[str, ...] = ()


ENVIRONMENTS = (
    Environment('torch-2.1.2', '2.1.2', '1.26.4'),
    Environment('openmmlab-oldest', '2.1.2', '1.26.4', packages=('mmengine==0.10.0', 'mmcv-lite==2.0.1', 'mmdet==3.0.0',
                                                                 'mmsegmentation==1.0.0')),
    Environment('torch-2.4.1', '2.4.1', '2.4.6'),
    Environment('torch-2.6.0', '2.6.0', '2.4.6'),
    Environment('torch-2.8.0', '2.8.0', '2.4.6'),
    Environment('torch-2.10.0', '2.10.0', '2.4.6'),
    Environment('torch-2.13.0', '2.13.0', '2.4.6'),
    Environment('torch-2.14.1', '2.14.1', '2.4.6'),
    Environment('python-3.10', '2.1.2', '1.23.5', python='3.10'),
    Environment('python-3.12', '2.13.0', '2.4.6', python='3.12'),
    Environment('oldest-runtimes', '2.13.0', '1.26.4', packages=('onnx==1.16.0', 'onnxruntime==1.17.0', 'onnxscript==0.7.2',
                                                                 'openvino==2026.1.0')),
    Environment('onedl', '2.8.0', '2.4.6', packages=('onedl-mmengine==0.10.12', 'onedl-mmcv==2.3.6', 'onedl-mmdetection==3.5.1',
                                                     'onedl-mmsegmentation==1.4.2')),
    Environment('compiled-2.1.2', '2.1.2', '1.26.4', packages=('mmcv==2.1.0',)),
    Environment('compiled-2.13.0', '2.13.0', '2.4.6', packages=('mmcv==2.1.0',)),
)
# The Pythons of the lock file; for others pip chooses the versions of all but OpenMMLab's packages.
LOCKED = ('3.11', '3.12')
OPENMMLAB = ('mmcv-lite', 'mmdet', 'mmengine', 'mmsegmentation')
# What a package takes the place of, under the same import name.
REPLACED = {'mmcv': 'mmcv-lite', 'onedl-mmcv': 'mmcv-lite', 'onedl-mmengine': 'mmengine', 'onedl-mmdetection': 'mmdet',
            'onedl-mmsegmentation': 'mmsegmentation'}


def install(environment: Environment, folder: Path) -> str | None:
    """Make the environment; return the last line of pip's error, or None."""
    python = interpreter(environment.python)
    if python is None:
        return f'no Python {environment.python} on this machine'
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([python, '-m', 'venv', '--clear', str(folder)], check=True)
    pinned = [f'torch=={environment.torch}', f'numpy=={environment.numpy}', 'setuptools==80.10.2', 'wheel', 'ninja']
    names = [package.partition('==')[0] for package in environment.packages]
    others = {name.replace('-', '_') for name in (*names, *(REPLACED.get(name, name) for name in names), 'numpy', 'setuptools', 'wheel')}
    locked = [line for name in ('lock', 'formats') for line in (ROOT / 'requirements' / f'{name}.txt').read_text().splitlines()
              if '==' in line and line.partition('==')[0].replace('-', '_') not in others]
    if environment.python in LOCKED:
        fixed, resolved = locked, []
    else:
        fixed = [line for line in locked if line.partition('==')[0] in OPENMMLAB]
        resolved = [*pinned[:2], *(line.partition('==')[0] for line in locked if line not in fixed)]
    alone = ['--no-deps', '--no-build-isolation']
    for packages in (pinned, resolved, ['--no-deps', *fixed], *([*alone, package] for package in environment.packages),
                     [*alone, '-e', str(ROOT)]):
        if not packages:
            continue
        if packages[-1].startswith('onedl-mmcv'):
            # Only its source is published, and its setup.py has no switch that leaves the ops out.
            packages[-1] = str(without_ops(packages[-1], folder))
        # A wheel in pip's cache may have been built against another torch.
        cache = ['--no-cache-dir'] if packages[-1].startswith('mmcv==') else []
        done = pip(folder, 'install', '--no-compile', *cache, *packages)
        if done.returncode:
            return f"pip install {packages[-1]}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    return None


def interpreter(version: str) -> str | None:
    """Return a Python of that version that runs; what pyenv puts on the PATH runs for the chosen version only."""
    candidates = [shutil.which(f'python{version}'), *map(str, Path.home().glob(f'.pyenv/versions/{version}.*/bin/python')), sys.executable]
    for python in filter(None, candidates):
        done = subprocess.run([python, '--version'], capture_output=True, text=True, check=False)
        if done.stdout.startswith(f'Python {version}.'):
            return python
    return None


def pip(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run pip of the environment; compiled mmcv takes 9 minutes on two cores."""
    return subprocess.run([str(folder / 'bin' / 'python'), '-m', 'pip', command[0], '-q', '--disable-pip-version-check', *command[1:]],
                          capture_output=True, text=True, check=False, env={**os.environ, 'MMCV_WITH_OPS': '1', 'MAX_JOBS': '2',
                                                                          'PATH': f'{folder / "bin"}:{os.environ["PATH"]}'})


def without_ops(package: str, folder: Path) -> Path:
    """Return the source of a package, changed so that no extension is built."""
    sources = folder / 'sources'
    done = pip(folder, 'download', '--no-deps', '--no-binary', ':all:', '--no-build-isolation', '-d', str(sources), package)
    archive, = sources.glob('*.tar.gz')
    shutil.unpack_archive(archive, sources)
    source, = (place for place in sources.iterdir() if place.is_dir())
    setup = source / 'setup.py'
    changed = re.sub(r'ext_modules=[^,]+,', 'ext_modules=[],', setup.read_text())
    if done.returncode or changed == setup.read_text():
        raise SystemExit(f'{package}: its setup.py names no ext_modules: look at {setup}')
    setup.write_text(changed)
    return source


def versions(folder: Path) -> dict[str, str]:
    """Return the versions of the packages that an export depends on."""
    code = ('import json, platform; from mmexport.cli.doctor import installed; '
            'print(json.dumps({"python": platform.python_version(), **installed()}))')
    done = subprocess.run([str(folder / 'bin' / 'python'), '-c', code], capture_output=True, text=True, check=True, cwd=ROOT)
    return dict(json.loads(done.stdout.splitlines()[-1]))
