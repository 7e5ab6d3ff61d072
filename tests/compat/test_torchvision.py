"""Test that a torchvision whose compiled ops do not load must still be importable."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

CODE = '''
import sys
sys.path.insert(0, {folder!r})
from mmexport.compat import provide_torchvision_ops
print(provide_torchvision_ops())
import torchvision
print(torchvision.name, provide_torchvision_ops())
import torch
try:
    torch.ops.torchvision.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
except NotImplementedError as exc:
    print('refused', 'torchvision::nms' in str(exc))
'''
# What torchvision's own files do while they are imported.
PACKAGE = '''
import torch
name = 'planted'

class extension:
    _has_ops = staticmethod(lambda: False)

for op in ('nms', 'qnms'):
    torch.library.register_fake('torchvision::' + op)(lambda dets, scores, iou_threshold: dets.new_empty(0))
'''


@pytest.mark.skipif(not hasattr(torch.library, 'register_fake'), reason='torch before 2.4 has no torch.library.register_fake')
def test_names_are_declared_without_the_library(tmp_path: Path) -> None:
    (tmp_path / 'torchvision').mkdir()
    (tmp_path / 'torchvision' / '__init__.py').write_text(PACKAGE)
    (tmp_path / 'torchvision' / '_C.so').write_bytes(b'built for another torch')
    without = subprocess.run([sys.executable, '-c', f'import sys; sys.path.insert(0, {str(tmp_path)!r}); import torchvision'],
                             capture_output=True, text=True, check=False)
    assert 'torchvision::nms does not exist' in without.stderr
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', CODE.format(folder=str(tmp_path))], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ['declared', 'planted', 'declared', 'refused', 'True']


def test_where_there_is_no_torchvision_nothing_is_done() -> None:
    code = ('import importlib.util as u, sys; real = u.find_spec; '
            'u.find_spec = lambda name, *rest: None if name == "torchvision" else real(name, *rest); '
            'from mmexport.compat import provide_torchvision_ops; print(provide_torchvision_ops())')
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == 'None'
