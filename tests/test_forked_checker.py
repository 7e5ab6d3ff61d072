"""Test that a forked checker answers as one that is started does, and holds nothing of OpenMMLab."""
from __future__ import annotations

from pathlib import Path

import pytest

from mmexport.verification.checker_process import waiting
from tests.forked_checker import ForkedChecker


def asked(folder: Path, backend: str, runner: Path | None = None) -> tuple[int, str]:
    with waiting(backend, folder / 'scratch', runner) as process:
        return process.run([str(folder), '--device', 'cpu'])


def test_the_answer_is_that_of_a_started_one(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with waiting('torchscript', tmp_path / 'scratch') as process:
        assert isinstance(process._child, ForkedChecker)
    forked = asked(tmp_path, 'torchscript'), asked(tmp_path, 'papyrus')[0]
    request.getfixturevalue('real_checker')
    assert forked == (asked(tmp_path, 'torchscript'), asked(tmp_path, 'papyrus')[0])
    assert forked[0][0] == 2 and 'manifest.json' in forked[0][1] and forked[1] == 1


@pytest.mark.parametrize(('code', 'expected'), [
    ('os.kill(os.getpid(), 9)', -9),
    ('os._exit(7)', 7),
    ('os._exit(sum(name.split(".")[0] in ("mmcv", "mmengine", "mmdet", "mmseg", "mmexport") for name in sys.modules))', 0)])
def test_how_it_ended_is_told(code: str, expected: int, tmp_path: Path) -> None:
    # The server imports the runtime first, and then the forked process.
    runner = tmp_path / 'runner.py'
    runner.write_text(f'import os, sys\nfrom pathlib import Path\n\nserver = Path(__file__ + ".server")\n\n\ndef ready():\n'
                      f'    if server.exists():\n        {code}\n    server.touch()\n')
    assert asked(tmp_path, 'other', runner)[0] == expected
