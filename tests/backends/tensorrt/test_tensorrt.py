"""Test Torch-TensorRT: what can be said without it, and the whole line where it and a GPU are present."""
from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mmexport import Exporter
from mmexport.adapters.specs import IMAGE
from mmexport.backends import build_backend, installed_backends
from mmexport.backends.tensorrt.backend import engines_of, shapes
from mmexport.errors import SetupError
from tests.tiny import seeded, tiny

PRESENT = find_spec('torch_tensorrt') is not None and torch.cuda.is_available()
AXES = ('batch', 'height', 'width')


@pytest.mark.skipif(PRESENT, reason='what is said where Torch-TensorRT is missing; it is here')
def test_a_missing_one_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match='tensorrt: torch_tensorrt not installed: pip install torch-tensorrt'):
        build_backend('tensorrt')
    assert 'tensorrt' not in installed_backends()
    done = subprocess.run([sys.executable, 'tools/export.py', 'configs/fcn.py', str(tmp_path / 'none.pth'), '--backend', 'tensorrt'],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert 'pip install torch-tensorrt' in done.stderr


def test_engines_are_built_for_shapes_around_the_traced_one() -> None:
    assert shapes((1, 3, 512, 640), AXES, None, IMAGE) == ((1, 3, 64, 64), (1, 3, 512, 640), (1, 3, 1024, 1280))
    assert shapes((2, 3, 512, 640), ('height',), (8, 600, 600), IMAGE) == ((2, 3, 64, 640), (2, 3, 512, 640), (2, 3, 600, 640))


def test_what_is_left_to_torch_is_counted() -> None:
    class TorchTensorRTModule(nn.Module):
        pass

    whole = nn.Module()
    whole.engine = TorchTensorRTModule()
    whole.left = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    assert engines_of(whole) == (1, 0)
    whole.left = torch.fx.symbolic_trace(_twice)
    assert engines_of(whole) == (1, 2)


def _twice(x: Tensor) -> Tensor:
    return torch.relu(torch.abs(x))


@pytest.mark.gpu
@pytest.mark.skipif(not PRESENT, reason='engines are built on an NVIDIA GPU, by torch_tensorrt')
def test_a_small_model_passes(tmp_path: Path) -> None:
    report, = Exporter(tiny('fcn', outputs='raw', backends=['tensorrt']), work_dir=tmp_path, model=seeded('fcn'), device='cuda').run()
    assert report.passed, report.reasons
    assert report.artifacts[0].manifest['tensorrt']['engines'] > 0
