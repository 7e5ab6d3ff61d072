"""Test what the runtimes do beside computing, and the formats that take longer to make."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, export

from mmexport import Exporter
from mmexport.adapters.specs import IMAGE
from mmexport.backends.aotinductor.backend import AOTInductor
from mmexport.backends.exported.program import exported_program, silenced
from mmexport.backends.onnx.trtexec import trtexec_line
from mmexport.backends.openvino.backend import OpenVINO
from mmexport.backends.openvino.runner import open_openvino
from mmexport.patching import patched
from tests.tiny import seeded, tiny

ROOT = Path(__file__).parents[2]
EXPORT = '''
import sys
from mmexport import Exporter
from tests.tiny import seeded, tiny
report, = Exporter(tiny('fcn', outputs='raw', backends=['torchscript', 'onnx', 'openvino', 'torch_export']), work_dir=sys.argv[1],
                  model=seeded('fcn')).run()
sys.exit(0 if report.passed else 1)
'''


def test_nothing_is_written_into_the_home_folder(tmp_path: Path) -> None:
    """Made, checked and checked again with an empty home: ONNX Runtime and OpenVINO write there unless they are told not to."""
    home, work = tmp_path / 'home', tmp_path / 'work'
    home.mkdir()
    env = {key: value for key, value in os.environ.items() if not key.startswith('XDG_')}
    env |= {'HOME': str(home), 'USERPROFILE': str(home), 'PYTHONPATH': str(ROOT)}
    subprocess.run([sys.executable, '-W', 'ignore', '-c', EXPORT, str(work)], env=env, check=True, capture_output=True, cwd=ROOT)
    for name in ('onnx', 'openvino'):
        subprocess.run([sys.executable, str(ROOT / 'tools' / 'verify.py'), str(work / name)], env=env, check=True, capture_output=True)
    # matplotlib and yapf, which OpenMMLab imports, keep caches there; no runtime may.
    actual = [str(path.relative_to(home)) for path in home.rglob('*') if path.is_file()]
    assert [path for path in actual if not path.startswith(('.cache/matplotlib/', '.cache/YAPF/'))] == []


def test_a_simplified_file_is_the_one_that_is_checked(tmp_path: Path) -> None:
    report, = Exporter(tiny('fcn', outputs='raw', backends=[dict(type='ONNX', simplify=True)]), work_dir=tmp_path / 'slim',
                      model=seeded('fcn')).run()
    plain, = Exporter(tiny('fcn', outputs='raw', backends=['onnx']), work_dir=tmp_path / 'plain', model=seeded('fcn')).run()
    assert report.passed, report.reasons
    slim, whole = report.artifacts[0].manifest['onnx'], plain.artifacts[0].manifest['onnx']
    assert slim['simplified'] and not whole['simplified']
    assert slim['nodes'] <= whole['nodes']


def test_the_line_for_trtexec_names_shapes_that_the_file_takes() -> None:
    assert trtexec_line('model.onnx', [dict(name='image', traced=(1, 3, 512, 100), dynamic=('batch', 'height', 'width'))]) == (
        'trtexec --onnx=model.onnx --saveEngine=model.engine --noTF32 --minShapes=image:1x3x256x64 --optShapes=image:1x3x512x100 '
        '--maxShapes=image:2x3x1024x200')
    fixed = trtexec_line('model.onnx', [dict(name='image', traced=(1, 3, 512, 512), dynamic=())])
    assert fixed and 'Shapes' not in fixed
    assert trtexec_line('model.onnx', [dict(dynamic=())]) is None


@pytest.mark.slow
def test_aotinductor_holds_at_sizes_that_it_never_saw(tmp_path: Path) -> None:
    report, = Exporter(tiny('fcn', outputs='raw', backends=['aotinductor']), work_dir=tmp_path, model=seeded('fcn')).run()
    assert report.passed, report.reasons
    facts = report.artifacts[0].manifest['aotinductor']
    assert facts['compile_s'] > 0
    assert facts['device'] == 'cpu'
    assert {'traced', '161x97', 'batch 3'} <= {row.sample for row in report.checks[0].rows}
    # With torch alone, in a process of its own.
    subprocess.run([sys.executable, str(ROOT / 'tools' / 'verify.py'), str(tmp_path / 'aotinductor'), '--trust'], check=True,
                   capture_output=True)


class Tokens(nn.Module):
    """Bring a picture to SegFormer's attention; of the strides of (h + 1) * (w + 1) torch cannot say which is larger."""

    def __init__(self) -> None:
        from mmseg.models.backbones.mit import EfficientMultiheadAttention
        super().__init__()
        self.model, self.attention = nn.Conv2d(3, 8, 7, stride=4, padding=3), EfficientMultiheadAttention(8, 1, sr_ratio=2)

    def forward(self, image: Tensor) -> Any:
        grid = self.model(image)
        return self.attention(grid.flatten(2).transpose(1, 2), (grid.shape[2], grid.shape[3]))


@pytest.mark.slow
def test_aotinductor_compiles_where_strides_cannot_be_compared(tmp_path: Path) -> None:
    tokens = Tokens().eval()
    with patched('auto'), silenced():
        program = exported_program(tokens, torch.zeros(1, 3, 128, 128), ('batch', 'height', 'width'))  # type: ignore[arg-type]
        made = AOTInductor(dict(max_autotune=False)).convert(program, tmp_path, ['answer'], (IMAGE,))
    assert made['options'] == dict(layout_optimization=False, max_autotune=False)
    run = torch._inductor.aoti_load_package(str(tmp_path / AOTInductor.file))
    for size in ((2, 3, 480, 544), (1, 3, 97, 131)):
        image = torch.randn(size)
        with torch.no_grad():
            torch.testing.assert_close(run(image), tokens(image))


@pytest.mark.slow
def test_aotinductor_rounds_convolutions_like_eager(tmp_path: Path) -> None:
    """Channels last, as Inductor would have it, oneDNN rounds worse over many channels."""
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Conv2d(3, 270, 3, padding=1), nn.Conv2d(270, 512, 3, padding=1)).eval()
    image = torch.randn(1, 3, 80, 96)
    program = torch.export.export(wide, (image,))
    AOTInductor().convert(program, tmp_path, ['answer'], (IMAGE,))
    with torch.no_grad():
        exact = wide.double()(image.double())
        eager = wide.float()(image)
        package = torch._inductor.aoti_load_package(str(tmp_path / AOTInductor.file))(image)
    assert (package - exact).abs().max() < 2 * (eager - exact).abs().max()


class Padded(nn.Module):
    """Pad to a multiple as Twins does, and return one tensor twice."""

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        padded = F.pad(image, (0, (7 - image.shape[3] % 7) % 7, 0, (7 - image.shape[2] % 7) % 7)).relu()
        return padded.clone(), padded.clone(), padded > 0.5, (padded > 0.5).clone(), padded * 2


def test_openvino_reads_remainders_and_repeated_outputs() -> None:
    openvino = open_openvino()
    with torch.no_grad(), silenced():
        program = export(Padded(), (torch.zeros(2, 3, 30, 33),), dynamic_shapes=({2: Dim.AUTO, 3: Dim.AUTO},), strict=False)
        model = OpenVINO().convert(program, Path(), ['a', 'b', 'c', 'd', 'e'], (IMAGE,))
    run = openvino.compile_model(model, 'CPU')
    for size in ((30, 33), (28, 41)):
        image = torch.randn(2, 3, *size)
        for expected, actual in zip(Padded()(image), run(image.numpy()).values(), strict=True):
            assert np.array_equal(expected.numpy(), actual)
