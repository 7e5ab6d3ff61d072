"""Test the description of the environment: what is installed, what can be made, and pairs that do not work together."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from mmexport.cli import doctor
from mmexport.cli.main import run
from mmexport.compat import tried
from mmexport.compat.pairs import known_incompatible, parse


def test_the_environment_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(['doctor']) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ('mmexport', 'torch', 'mmdet', 'mmcv ops', 'GPU'))
    assert 'torchscript         available' in printed


@pytest.mark.parametrize(('versions', 'remedy'), [
    ({'mmcv': '2.1.0', 'mmcv-lite': '2.1.0'}, 'pip uninstall -y mmcv mmcv-lite'),
    ({'mmcv': '2.2.0', 'mmdet': '3.3.0'}, "pip install 'mmcv-lite>=2.0,<2.2'"),
    ({'mmcv-lite': '2.1.0', 'mmdet': '3.0.0'}, "pip install 'mmcv-lite>=2.0,<2.1'"),
    ({'mmengine': '0.10.7', 'setuptools': '81.0.0'}, "'setuptools<81'"),
    ({'onnxruntime': '1.20.0', 'onnxruntime-gpu': '1.20.0'}, 'install one of them')])
def test_incompatible_pairs_have_a_remedy(versions: dict[str, str], remedy: str) -> None:
    assert any(remedy in pair.remedy for pair in known_incompatible(versions))


def test_what_is_installed_here_is_compatible() -> None:
    assert known_incompatible({'mmcv-lite': '2.1.0', 'mmdet': '3.3.0', 'mmengine': '0.10.7', 'setuptools': '80.10.2'}) == []


def test_a_pair_stops_every_export(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, 'installed', lambda: {'torch': '2.13.0', 'mmengine': '0.10.7', 'setuptools': '82.0'})
    assert run(['doctor']) == 3
    assert "Remedy: pip install 'setuptools<81'" in capsys.readouterr().out


def test_without_torch_it_says_so_and_nothing_else_fails(tmp_path: Path) -> None:
    """Run in an interpreter that has every installed package but torch."""
    import subprocess
    import sys
    import sysconfig
    for place in Path(sysconfig.get_paths()['purelib']).iterdir():
        if not place.name.startswith(('torch', 'functorch')) and place.suffix != '.pth':
            (tmp_path / place.name).symlink_to(place)
    root = Path(doctor.__file__).parents[2]
    code = (f'import sys; sys.path[:0] = [{str(root)!r}]; sys.path.append({str(tmp_path)!r}); from mmexport.cli.main import run; '
            'sys.exit(run(sys.argv[1:]))')

    def ended(*arguments: str) -> tuple[int, str]:
        # Of a virtual environment the base interpreter, which has no packages.
        python = Path(sys.base_prefix) / 'bin' / f'python{sys.version_info[0]}.{sys.version_info[1]}'
        done = subprocess.run([str(python), '-I', '-S', '-c', code, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code_of_doctor, printed = ended('doctor')
    assert code_of_doctor == 3 and 'missing: torch: pip install torch' in printed and 'numpy' in printed
    for command in (('export', 'a', 'b'), ('verify', str(tmp_path))):
        ended_with, printed = ended(*command)
        assert ended_with == 3 and 'torch' in printed and 'Traceback' not in printed, printed


def test_doctor_says_whether_this_torch_was_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tried, 'FILE', tmp_path / 'tried.json')
    (tmp_path / 'tried.json').write_text(json.dumps([dict(torch='2.4.1', numpy='2.4.6', python='3.11', formats=dict(onnx=[3, 4])),
                                                     dict(torch='2.4.1', numpy='2.4.6', python='3.12', formats=dict(onnx=[4, 4]))]))
    words = 'tried: onnx 3 of 4 models passed, with Python 3.11 and numpy 2.4.6'
    assert tried.tried_in_words('2.4.1+cu121', '3.11', '2.4.6') == words
    assert tried.tried_in_words('2.4.1', '3.10', '2.0.1') == f'{words}; not tried with Python 3.10 and numpy 2.0.1, which is here'
    assert 'onnx 4 of 4' in tried.tried_in_words('2.4.1', '3.12', '2.0.1')
    assert tried.tried_in_words('2.4.0', '3.11', '2.4.6') == 'not tried; tried were torch 2.4.1'


def test_parse_reads_the_numbers_of_a_version() -> None:
    assert parse('2.13.0+cpu') == (2, 13, 0)
    assert parse('0.10.7rc1') == (0, 10, 7)
