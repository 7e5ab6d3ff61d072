"""Check the program's options."""
from __future__ import annotations

from pathlib import Path

import pytest

from mmexport.checker.options import parse


def test_parse_defaults() -> None:
    assert vars(parse(['work'])) == dict(folder=Path('work'), samples=None, device='cpu', raw=None, trust=False, runner=None,
                                        kind=[], verbose=False, out=None)


def test_parse_all_options() -> None:
    args = parse(['work', '--samples', 'a.npz', '--device', 'cuda:1', '--raw', 'raw', '--trust', '--runner', 'r.py', '--kind', 'a=b.py',
                  '--verbose', '--out', 'found.json'])
    assert vars(args) == dict(
        folder=Path('work'), samples=Path('a.npz'), device='cuda:1', raw=Path('raw'), trust=True, runner=Path('r.py'),
        kind=['a=b.py'], verbose=True, out=Path('found.json'))


def test_parse_help_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('COLUMNS', '200')
    with pytest.raises(SystemExit) as end:
        parse(['--help'])
    assert end.value.code == 0
    lines = ' '.join(capsys.readouterr().out.split())
    for text in ('usage: verify [-h]', 'Check a lowered file against its samples, with torch and numpy alone.',
                 'folder holds the file, manifest.json and samples.npz', '--samples SAMPLES another samples file',
                 '--device DEVICE where it runs: cpu, cuda, cuda:N (cpu)',
                 '--trust load a file that can run code of its author: torch.export, AOTInductor, TensorRT',
                 '--runner RUNNER the runner.py of a format that your project registers',
                 '--verbose show all rows, not only those that fail',
                 '--out OUT write the findings as JSON instead of a table'):
        assert f'{text} ' in f'{lines} ', text
    assert '--raw' not in lines
