"""Test the command-line tools as a user runs them: in other processes, on files, with their exit codes."""
from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.tiny import seeded, tiny

ROOT = Path(__file__).parents[2]
ENV = {**{name: value for name, value in os.environ.items() if name != 'PYTHONPATH'}, 'PYTHONWARNINGS': 'ignore', 'OMP_NUM_THREADS': '1'}


def run(tool: str, *args: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ROOT / 'tools' / f'{tool}.py'), *map(str, args)], capture_output=True, text=True,
                          cwd=cwd, env=env or ENV, check=False, timeout=300)


@pytest.fixture(scope='session')
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a config and a checkpoint, as a user has them."""
    folder = tmp_path_factory.mktemp('project')
    tiny('segformer_b0').dump(folder / 'segformer.py')
    torch.save({'state_dict': seeded('segformer_b0').state_dict(), 'meta': {}}, folder / 'segformer.pth')
    return folder


@pytest.mark.parametrize('tool', ['export', 'make_checkpoint', 'pytorch2libtorch', 'verify'])
def test_help_answers_at_once(tool: str) -> None:
    started = time.perf_counter()
    done = run(tool, '--help')
    assert done.returncode == 0
    assert 'sage: ' in done.stdout
    assert time.perf_counter() - started < 2


def test_export_then_verify_from_the_folder_alone(project: Path, tmp_path: Path, photograph_file: Path) -> None:
    done = run('export', project / 'segformer.py', project / 'segformer.pth', '--backend', 'torchscript', '--work-dir', tmp_path / 'w',
               '--image', photograph_file, '--cfg-options', 'test_dataloader.dataset.pipeline.1.scale=(160,128)')
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'PASS' in done.stdout
    assert 'test_step: agrees on' in done.stdout
    assert 'FAIL' not in done.stdout
    assert max(map(len, done.stdout.replace(str(tmp_path), '').splitlines())) <= 80
    assert 'Running eager' in done.stderr
    report = json.loads((tmp_path / 'w' / 'report.json').read_text())
    assert report['passed'] is True
    assert report['versions']['mmcv_ops'] in ('stand-in', 'compiled')
    assert report['artifacts'][0]['result']['foreign_modules'] == []
    assert report['artifacts'][0]['manifest']['torchscript']['fused']['conv_bn_folded'] > 0
    folder = tmp_path / 'w' / 'torchscript'
    assert sorted(path.name for path in folder.iterdir()) == ['manifest.json', 'model.pt', 'report.json', 'samples.npz']
    assert {path.name for path in (tmp_path / 'w').iterdir()} == {'torchscript', 'report.json'}
    again = without_openmmlab(folder)
    assert again.returncode == 0, again.stdout + again.stderr
    assert 'PASS on cpu' in again.stdout
    (folder / 'model.pt').write_bytes((folder / 'model.pt').read_bytes()[:-100])
    broken = without_openmmlab(folder)
    assert broken.returncode == 1
    assert 'not the file of this manifest' in broken.stdout


def without_openmmlab(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run tools/verify.py in a process in which every import of a module mm* fails."""
    code = ('import sys, runpy\n'
            'class Refuse:\n'
            '    def find_spec(self, name, path=None, target=None):\n'
            '        if name.startswith("mm") and name != "mmap": raise ImportError(f"{name} was imported")\n'
            'sys.meta_path.insert(0, Refuse())\n'
            f'sys.argv = ["verify", {str(folder)!r}]\n'
            f'runpy.run_path({str(ROOT / "tools" / "verify.py")!r}, run_name="__main__")')
    return subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, env=ENV, check=False)


def test_no_verify_says_not_run(project: Path, tmp_path: Path) -> None:
    done = run('export', project / 'segformer.py', project / 'segformer.pth', '--work-dir', tmp_path, '--no-verify')
    assert done.returncode == 0
    assert 'not run' in done.stdout
    report = json.loads((tmp_path / 'report.json').read_text())
    assert report['passed'] is None
    assert report['verified'] is None
    assert report['artifacts'][0]['verified'] is None


@pytest.mark.parametrize(('args', 'code', 'words'), [
    (['absent.py', 'c.pth'], 2, 'no such config'),
    (['{project}/segformer.py', 'absent.pth'], 2, 'no such file'),
    (['{project}/segformer.py', '{project}/segformer.py'], 2, 'cannot be read as a checkpoint'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--backend', 'tflite'], 2, 'no backend'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--device', 'cuda:7'], 3, 'CUDA devices'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--device', 'toaster'], 2, 'toaster'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--device', 'mps'], 2, 'expected cpu'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--batch', '0'], 2, 'at least 1'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--backend', 'torchscript', 'torchscript'], 2, 'twice'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--cfg-options', 'export.inputs.dynamic=[hight]'], 2, 'hight'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--cfg-options', 'export.task=SemanticMasks'], 2, 'does not fit'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--image', 'absent.jpg'], 2, 'absent.jpg'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--cfg-options', 'export.outputz=raw'], 2, 'outputz'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--cfg-options', 'exprt.outputs=raw'], 2, 'did you mean export?'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--cfg-options', 'export.verify.tolerance.scal=1e-3'], 2,
     "export.verify.tolerance has no key 'scal'"),
    (['{project}/segformer.py', '{project}/segformer.py'], 2, 'neither a zip file nor a pickle'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--cfg-options', 'model.backbone.type=Nope'], 2, 'custom_imports'),
    (['{project}/segformer.py', '{project}/segformer.pth', '--cfg-options', 'model.backbone.type=mmpretrain.Nope'], 3,
     'pip install mmpretrain'),
])
def test_wrong_input_is_one_line_and_writes_nothing(args: list[str], code: int, words: str, project: Path, tmp_path: Path) -> None:
    if '--device' in args and 'cuda:7' in args and torch.cuda.device_count() > 7:
        pytest.skip('this machine has eight GPUs')
    done = run('export', *(arg.format(project=project) for arg in args), '--work-dir', tmp_path / 'w', '--quiet')
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / 'w').exists()


@pytest.mark.parametrize('config', ['own', 'mmseg::erfnet/erfnet_fcn_4xb4-160k_cityscapes-512x1024.py'])
def test_a_missing_package_is_exit_3_with_what_to_install(config: str, project: Path, tmp_path: Path) -> None:
    """A machine without mmsegmentation, and a config of it, by path or by name."""
    code = ('import sys, runpy, importlib.util\n'
            'find = importlib.util.find_spec\n'
            'importlib.util.find_spec = lambda name, package=None: None if name.startswith("mmseg") else find(name, package)\n'
            'class Missing:\n'
            '    def find_spec(self, name, path=None, target=None):\n'
            '        if name.split(".")[0] == "mmseg": raise ModuleNotFoundError("No module named \'mmseg\'", name="mmseg")\n'
            'sys.meta_path.insert(0, Missing())\n'
            f'sys.argv = ["export", {str(project / "segformer.py") if config == "own" else config!r}, {str(project / "segformer.pth")!r}, '
            f'"--work-dir", {str(tmp_path / "w")!r}]\n'
            f'runpy.run_path({str(ROOT / "tools" / "export.py")!r}, run_name="__main__")')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, env=ENV, check=False)
    assert done.returncode == 3, done.stderr
    assert 'mmexport[seg]' in done.stderr
    assert 'custom_imports' not in done.stderr


def test_a_misspelt_section_gets_a_suggestion(project: Path, tmp_path: Path) -> None:
    config = tmp_path / 'misspelt.py'
    config.write_text((project / 'segformer.py').read_text().replace('export = dict(', 'exports = dict('))
    done = run('export', config, project / 'segformer.pth', '--work-dir', tmp_path / 'w')
    assert done.returncode == 2
    assert "a section 'exports', which nothing reads (did you mean export?)" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(not Path('/proc/self').is_dir(), reason='a file system that refuses what its permissions allow: there is no /proc here')
def test_unwritable_file_system_is_found_before_building(project: Path) -> None:
    done = run('export', project / 'segformer.py', project / 'segformer.pth', '--work-dir', '/proc/nowhere')
    assert done.returncode == 2
    assert 'nothing can be written into /proc' in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_impossible_work_dir_is_one_line_before_building(project: Path, tmp_path: Path) -> None:
    (tmp_path / 'file').touch()
    done = run('export', project / 'segformer.py', project / 'segformer.pth', '--work-dir', tmp_path / 'file' / 'w')
    assert done.returncode == 2
    assert str(tmp_path / 'file') in done.stderr
    assert 'Building the model' not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_size_that_the_model_itself_refuses_is_one_line(project: Path, tmp_path: Path) -> None:
    done = run('export', project / 'segformer.py', project / 'segformer.pth', '--shape', 8, 8, '--work-dir', tmp_path / 'w', '--quiet')
    assert done.returncode == 2, done.stderr
    assert 'does not take the traced size' in done.stderr
    assert 'It takes sides of at least 64: --shape 64 64' in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    done = run('export', project / 'segformer.py', project / 'segformer.pth', '--image', __file__, '--work-dir', tmp_path / 'w', '--quiet')
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_users_project_with_its_own_imports_is_unchanged(project: Path, tmp_path: Path) -> None:
    """Another repository: its own backbone, registered by a module that its config imports, and its own patch."""
    (tmp_path / 'own_net.py').write_text(
        'from mmseg.registry import MODELS\nfrom mmseg.models import MixVisionTransformer\n'
        'from mmexport.patching import Patch\nfrom mmexport.registry import PATCHES\n'
        '@MODELS.register_module()\nclass OwnNet(MixVisionTransformer):\n'
        '    def forward(self, x):\n        return super().forward(x * 1.0)\n'
        '@PATCHES.register_module()\nclass OwnPatch(Patch):\n    """Nothing."""\n'
        '    targets = ("own_net.OwnNet.forward",)\n    upstream = "own"\n'
        '    def replacement(self, target, original):\n        return lambda module, x: original(module, x)\n')
    (tmp_path / 'config.py').write_text(
        f"_base_ = {str(project / 'segformer.py')!r}\n"
        "custom_imports = dict(imports=['own_net'], allow_failed_imports=False)\nmodel = dict(backbone=dict(type='OwnNet'))\n"
        "export = dict(patches=['auto', 'OwnPatch'])\n")
    env = {**ENV, 'PYTHONPATH': str(tmp_path)}
    done = run('export', tmp_path / 'config.py', project / 'segformer.pth', '--work-dir', tmp_path / 'w', env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'OwnPatch' in json.loads((tmp_path / 'w' / 'report.json').read_text())['artifacts'][0]['manifest']['patches']
    lost = run('export', tmp_path / 'config.py', project / 'segformer.pth', '--work-dir', tmp_path / 'v')
    assert lost.returncode == 2
    assert 'own_net' in lost.stderr


def test_a_kill_leaves_the_old_result_whole(project: Path, tmp_path: Path) -> None:
    args = ['export', project / 'segformer.py', project / 'segformer.pth', '--work-dir', tmp_path, '--quiet', '--no-verify']
    assert run(*args).returncode == 0
    whole = time.perf_counter()
    assert run(*args).returncode == 0
    whole = time.perf_counter() - whole
    for _ in range(4):
        process = subprocess.Popen([sys.executable, str(ROOT / 'tools' / 'export.py'), *map(str, args[1:])], env=ENV)
        time.sleep(random.uniform(0.5, 1.0) * whole)
        process.send_signal(signal.SIGKILL)
        process.wait()
        manifest = json.loads((tmp_path / 'torchscript' / 'manifest.json').read_text())
        from mmexport.artifact import sha256
        assert sha256(tmp_path / 'torchscript' / 'model.pt') == manifest['sha256']
        report = json.loads((tmp_path / 'report.json').read_text())
        assert report['artifacts'][0]['manifest']['sha256'] == manifest['sha256']
    assert run(*args).returncode == 0
    assert not list(tmp_path.glob('.mmexport-*'))


def test_make_checkpoint_says_what_it_is(project: Path, tmp_path: Path) -> None:
    done = run('make_checkpoint', project / 'segformer.py', tmp_path / 'c.pth', '--seed', '4')
    assert done.returncode == 0, done.stderr
    assert 'demos and tests only' in done.stdout
    content = torch.load(tmp_path / 'c.pth', weights_only=True)
    assert 'not trained' in content['meta']['made_by']
    assert content['meta']['seed'] == 4


def test_pytorch2libtorch_writes_file_and_picture(project: Path, tmp_path: Path, photograph_file: Path) -> None:
    done = run('pytorch2libtorch', project / 'segformer.py', '--checkpoint', project / 'segformer.pth', '--shape', 128, 160,
               '--output-file', tmp_path / 'out.pt', '--verify', '--show', '--input-img', photograph_file)
    assert done.returncode == 0, done.stdout + done.stderr
    labels = torch.jit.load(str(tmp_path / 'out.pt'))(torch.randn(1, 3, 144, 128))[0]
    assert labels.shape == (1, 144, 128)
    import cv2
    assert cv2.imread(str(tmp_path / 'out.pt.png')).shape == (128, 3 * 160, 3)
