"""Test tools/audit.py as a user calls it: a project with a fault, a clean one, anybody's file."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.device.planted import CONFIG, clean_source, marked_line, source
from tests.tools.test_tools import ENV, run


def project(folder: Path, code: str) -> dict[str, str]:
    (folder / 'own_parts.py').write_text(code)
    (folder / 'config.py').write_text(CONFIG.format(module='own_parts'))
    return {**ENV, 'PYTHONPATH': str(folder)}


def test_a_users_project_with_a_fault(tmp_path: Path) -> None:
    env = project(tmp_path, source('own', 'attribute'))
    done = run('audit', tmp_path / 'config.py', '--json', tmp_path / 'found.json', env=env)
    assert done.returncode == 1, done.stderr
    line = f"{tmp_path / 'own_parts.py'}:{marked_line(tmp_path / 'own_parts.py')}"
    assert line in done.stdout
    assert 'module neck.own' in done.stdout
    assert 'register_buffer' in done.stdout
    actual = json.loads((tmp_path / 'found.json').read_text())
    assert [finding['kind'] for finding in actual['findings']] == ['attribute']
    fixed = run('audit', tmp_path / 'config.py', '--fix', env=env)
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert 'fixed: self.scale, a plain tensor attribute: moved to' in fixed.stdout


def test_a_clean_project(tmp_path: Path) -> None:
    done = run('audit', tmp_path / 'config.py', env=project(tmp_path, clean_source('own', 'pass')))
    assert done.returncode == 0, done.stdout + done.stderr
    assert '0 findings' in done.stdout


def test_anybodys_file_is_found_fixed_and_verified(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.arange(x.shape[-1])

    torch.jit.save(torch.jit.trace(Net(), (torch.zeros(1, 3, 8, 8),)), str(tmp_path / 'm.pt'))
    assert run('audit', tmp_path / 'm.pt').returncode == 1
    done = run('audit', tmp_path / 'm.pt', '--fix', tmp_path / 'out.pt')
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'aten::arange with the device' in done.stdout
    assert run('audit', tmp_path / 'out.pt').returncode == 0


@pytest.mark.parametrize(('args', 'words'), [(['absent.py'], 'absent.py'), (['absent.pt'], 'no such file'),
                                             (['absent.pt', '--device', 'toaster'], 'toaster')])
def test_wrong_input_is_one_line(args: list[str], words: str) -> None:
    done = run('audit', *args)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_export_with_a_fault_says_so_and_goes_on_for_the_cpu(tmp_path: Path) -> None:
    env = project(tmp_path, source('head', 'factory'))
    checkpoint = tmp_path / 'c.pth'
    made = run('make_checkpoint', tmp_path / 'config.py', checkpoint, env=env)
    assert made.returncode == 0, made.stderr
    done = run('export', tmp_path / 'config.py', checkpoint, '--work-dir', tmp_path / 'w', env=env)
    assert 'devices, as if on cuda:0: 1 finding' in done.stdout, done.stdout + done.stderr
    report = json.loads(next((tmp_path / 'w').rglob('report.json')).read_text())
    assert report['audit']['findings'][0]['kind'] == 'factory'


def test_dtypes_that_meet_stop_an_export_anywhere(tmp_path: Path) -> None:
    env = project(tmp_path, clean_source('head', 'pass'))
    assert run('make_checkpoint', tmp_path / 'config.py', tmp_path / 'c.pth', env=env).returncode == 0
    project(tmp_path, source('head', 'half'))
    done = run('export', tmp_path / 'config.py', tmp_path / 'c.pth', '--work-dir', tmp_path / 'w', '--quiet', env=env)
    assert done.returncode == 1, done.stdout + done.stderr
    assert 'torch.float16 and torch.float32 meet in conv2d' in done.stderr
    assert f"own_parts.py:{marked_line(tmp_path / 'own_parts.py')}" in done.stderr
    assert not list(tmp_path.glob('w/**/model.pt'))
