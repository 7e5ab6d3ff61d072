from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

from mmexport.compat import packages, provide_mmcv_ext
from mmexport.errors import MissingOpError, SetupError


def test_missing_op_names_itself_and_the_remedy() -> None:
    if provide_mmcv_ext() == 'compiled':
        pytest.skip('this mmcv has the op')
    import torch
    from mmcv.ops import nms_rotated
    with pytest.raises(MissingOpError, match=r'mmcv\._ext\.nms_rotated.*mim install'):
        nms_rotated(torch.tensor([[0.0, 0, 1, 1, 0]]), torch.tensor([1.0]), 0.5)


def test_a_real_extension_always_wins(tmp_path: object) -> None:
    """In a process of its own: a module that lies where mmcv looks is taken before the stand-in."""
    code = (f'import sys, pathlib, mmcv; folder = pathlib.Path({str(tmp_path)!r}); '
            "(folder / '_ext.py').write_text('real = True'); mmcv.__path__.insert(0, str(folder)); "
            'from mmexport.compat import provide_mmcv_ext; print(provide_mmcv_ext()); import mmcv._ext; print(mmcv._ext.real)')
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ['compiled', 'True']


def test_an_extension_that_does_not_load_is_explained(tmp_path: object) -> None:
    code = (f'import sys, pathlib, mmcv; folder = pathlib.Path({str(tmp_path)!r}); '
            "(folder / '_ext.py').write_text('raise ImportError(\"undefined symbol\")'); mmcv.__path__.insert(0, str(folder)); "
            'from mmexport.compat import provide_mmcv_ext; provide_mmcv_ext()')
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], capture_output=True, text=True, check=False)
    assert 'SetupError' in done.stderr
    assert 'undefined symbol' in done.stderr


@pytest.mark.parametrize(('installed', 'words'), [
    ({}, 'not installed'), ({'mmcv': '2.1.0', 'mmcv-lite': '2.1.0'}, 'both installed'), ({'mmcv': '2.2.0'}, 'mmcv 2.2.0'),
    ({'mmcv': '1.7.2'}, 'mmcv 1.7.2'), ({'mmcv-lite': '2.1.0', 'mmdet': '3.0.0'}, 'mmcv-lite and mmdet do not go together')])
def test_wrong_mmcv_is_refused_with_the_remedy(installed: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name in installed:
            return installed[name]
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(packages.metadata, 'version', version)
    with pytest.raises(SetupError, match=words) as caught:
        packages.check_packages()
    assert 'pip install' in str(caught.value)
    assert caught.value.exit_code == 3
