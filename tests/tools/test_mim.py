"""Test ``mim install`` and ``mim run``, from a built wheel, in an environment of its own."""
from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.tools.test_tools import ENV, ROOT, project  # noqa: F401


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason='openmim 0.3.9 pins setuptools 60.2, which crashes on Python 3.12')
def test_mim_runs_the_tools_of_the_wheel(project: Path, tmp_path: Path) -> None:  # noqa: F811
    # A copy, so that the build leaves nothing in the checkout.
    source = tmp_path / 'source'
    subprocess.run(['git', 'clone', '-q', str(ROOT), str(source)], check=True)
    pip(sys.executable, 'wheel', '--no-deps', '--no-build-isolation', '-w', str(tmp_path), str(source))
    wheel = next(tmp_path.glob('mmexport-*.whl'))
    subprocess.run([sys.executable, '-m', 'venv', str(tmp_path / 'env')], check=True)
    bin_dir = tmp_path / 'env' / 'bin'
    pip(str(bin_dir / 'python'), 'install', 'openmim==0.3.9')
    # torch and OpenMMLab are shared with this environment, behind its own packages: hundreds of MB need not be copied.
    site = next((tmp_path / 'env').glob('lib/python*/site-packages'))
    (site / 'zz_shared.pth').write_text(sysconfig.get_paths()['purelib'] + '\n')
    pip(str(bin_dir / 'python'), 'install', '--no-deps', '--force-reinstall', str(wheel))
    where = subprocess.run([str(bin_dir / 'python'), '-c', 'import mmexport, mmexport.patches; print(mmexport.__file__)'],
                           capture_output=True, text=True, check=True, env=ENV, cwd=tmp_path)
    assert str(site) in where.stdout
    done = subprocess.run([str(bin_dir / 'mim'), 'run', 'mmexport', 'export', str(project / 'segformer.py'),
                           str(project / 'segformer.pth'), '--backend', 'torchscript', '--work-dir', str(tmp_path / 'out')],
                          capture_output=True, text=True, env=ENV, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'PASS' in done.stdout
    assert (tmp_path / 'out' / 'torchscript' / 'model.pt').is_file()


def pip(python: str, *args: str) -> None:
    done = subprocess.run([python, '-m', 'pip', '-q', '--disable-pip-version-check', *args], capture_output=True, text=True, env=ENV,
                          check=False)
    assert done.returncode == 0, done.stderr
