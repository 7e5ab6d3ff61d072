"""Test the C++ program, built against the installed LibTorch, on small artifacts."""
from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mmexport.export.exporter import Exporter
from tests.tiny import seeded, tiny
from tests.tools.test_tools import ENV, ROOT

# One worker runs them: they share what is computed once.
pytestmark = pytest.mark.xdist_group('cpp')

CPP = ROOT / 'examples' / 'cpp'
needs_compiler = pytest.mark.skipif(not (shutil.which('cmake') and (shutil.which('c++') or shutil.which('g++'))),
                                    reason='cmake and a C++ compiler are needed')


@pytest.fixture(scope='module')
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp('build')
    for command in (['cmake', f'-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}', '-DCMAKE_BUILD_TYPE=Release', str(CPP)],
                    ['cmake', '--build', '.']):
        done = subprocess.run(command, cwd=build, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return build / 'run'


@pytest.fixture(scope='module')
def segformer(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Export SegFormer once; returns what copies it, for tests change their copy."""
    made = exported('segformer_b0', tmp_path_factory.mktemp('segformer'))
    return lambda folder: Path(shutil.copytree(made, folder))


def exported(name: str, work_dir: Path, backend: str = 'torchscript', **inputs: object) -> Path:
    report, = Exporter(tiny(name, inputs=inputs, backends=[backend]), work_dir=work_dir, model=seeded(name)).run()
    assert report.passed, report.reasons
    folder = report.artifacts[0].folder
    subprocess.run([sys.executable, str(CPP / 'samples.py'), str(folder)], env=ENV, check=True)
    return folder


def ppm(path: Path, height: int, width: int) -> Path:
    pixels = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    path.write_bytes(f'P6 {width} {height} 255\n'.encode() + pixels.numpy().tobytes())
    return path


@needs_compiler
@pytest.mark.parametrize('name', ['segformer_b0', 'mask2former_r50'])
def test_it_loads_runs_and_agrees(name: str, program: Path, tmp_path: Path, segformer: Callable[[Path], Path]) -> None:
    folder = segformer(tmp_path / 'w') if name == 'segformer_b0' else exported(name, tmp_path / 'w')
    done = subprocess.run([program, folder, 'cpu', ppm(tmp_path / 'p.ppm', 128, 160)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith('EQUAL\n')
    for words in ('manifest: ', 'call 1: ', 'call 2: ', 'steady p50: ', 'batch 3 output 0'):
        assert words in done.stdout
    assert '[1, 128, 160]' in done.stdout


@needs_compiler
@pytest.mark.slow
def test_a_compiled_package_loads_runs_and_agrees(program: Path, tmp_path: Path) -> None:
    folder = exported('fcn', tmp_path / 'w', 'aotinductor')
    command = [program.with_name('run_aoti'), folder, 'cpu', ppm(tmp_path / 'p.ppm', 128, 160)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith('EQUAL\n')
    assert 'batch 3 output 0' in done.stdout
    missing = subprocess.run([command[0], tmp_path], capture_output=True, text=True, check=False)
    assert missing.returncode == 2
    assert 'manifest.json is missing' in missing.stderr


@needs_compiler
def test_what_is_not_equal_is_no_success(program: Path, tmp_path: Path, segformer: Callable[[Path], Path]) -> None:
    folder = segformer(tmp_path / 'w')
    content = torch.load(folder / 'samples.pt')
    content['samples'][0]['expected'][1] = content['samples'][0]['expected'][1] * 1.01
    torch.save(content, folder / 'samples.pt')
    done = subprocess.run([program, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.endswith('DIFFERENT\n')
    (folder / 'samples.pt').unlink()
    assert subprocess.run([program, folder], capture_output=True, check=False).returncode == 2


@needs_compiler
@pytest.mark.parametrize('normalize', [False, True])
def test_pictures_are_prepared_as_the_manifest_says(normalize: bool, program: Path, tmp_path: Path,
                                                    segformer: Callable[[Path], Path]) -> None:
    """The labels of the program's picture are those of the same picture prepared by the model's own data_preprocessor."""
    folder = exported('segformer_b0', tmp_path / 'w', normalize=True) if normalize else segformer(tmp_path / 'w')
    picture = ppm(tmp_path / 'p.ppm', 128, 160)
    done = subprocess.run([program, folder, 'cpu', picture], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rgb = torch.frombuffer(bytearray(picture.read_bytes()[-128 * 160 * 3:]), dtype=torch.uint8).view(128, 160, 3)
    bgr = rgb.permute(2, 0, 1).flip(0)
    prepared = seeded('segformer_b0').data_preprocessor(dict(inputs=[bgr], data_samples=None), False)['inputs']
    image = bgr[None].float() if normalize else prepared
    with torch.no_grad():
        labels = torch.jit.load(str(folder / 'model.pt'))(image)[0]
    told = float(next(line for line in done.stdout.splitlines() if line.startswith('output')).rsplit(' ', 1)[1])
    assert told == pytest.approx(float(labels.sum()), rel=1e-3)
