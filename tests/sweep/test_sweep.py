"""Test that rows are never lost and never made twice, whatever is killed; the table is what the rows say."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mmexport.sweep.document import write
from mmexport.sweep.job import run
from mmexport.sweep.plan import Job
from mmexport.sweep.run import sweep, weights_of
from mmexport.sweep.store import Store
from mmexport.sweep.work import _run, work
from tests.sweep import jobs as quick

ROOT = Path(__file__).parents[2]
ERFNET = 'mmseg::erfnet/erfnet_fcn_4xb4-160k_cityscapes-512x1024.py'


def test_failed_rows_run_again_on_request_or_higher_limits(tmp_path: Path) -> None:
    job, other = quick.jobs(2)
    store = Store(tmp_path / 'done.sqlite', quick.UNDER)
    store.keep(job.row('torchscript', passed=False, reason='not done in 10 s', limits=[10, 8]))
    store.keep(other.row('torchscript', passed=False, reason='wrong'))

    def made(**options: Any) -> int:
        return sweep([job, other], store, tmp_path, workers=1, run_job=fails, **options)

    assert made(limit_s=10, limit_gb=8) == 0
    assert made(limit_s=20, limit_gb=8) == 1
    assert made(limit_s=20, limit_gb=8) == 0
    assert made(limit_s=10, limit_gb=8, again=True) == 2


def fails(spec: dict[str, Any], weights: str, limit_s: float, limit_gb: float) -> list[dict[str, Any]]:
    return Job.from_dict(spec).rows(passed=False, reason='not done', limits=[limit_s, limit_gb])


def test_only_the_formats_that_are_missing_are_done(tmp_path: Path) -> None:
    job = Job('mmseg::test/0.py', ('torchscript', 'onnx', 'openvino'))
    store = Store(tmp_path / 'done.sqlite', quick.UNDER)
    store.keep(job.row('onnx', passed=True, reason=None))
    reported: list[tuple[str, int, int]] = []
    assert sweep([job], store, tmp_path, workers=1, run_job=quick.noted,
                 on_row=lambda row, done, of: reported.append((row['backend'], done, of))) == 2
    assert reported == [('torchscript', 2, 3), ('openvino', 3, 3)]
    # Another shape, or pictures of the user's, are another question.
    assert store.row(Job('mmseg::test/0.py', ('onnx',), (256, 256)).row('onnx')) is None
    assert store.row(Job('mmseg::test/0.py', ('onnx',), None, ('a.png',)).row('onnx')) is None


def test_a_failed_row_comes_with_its_diagnosis_and_repro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch on data, planted in the backbone."""
    job = Job(ERFNET, ('onnx',), (64, 96))
    weights = weights_of(job, tmp_path)

    def planted(self: Any, x: Any) -> Any:
        from torch.nn import functional as F
        return F.relu(x) if x.sum() > -1e9 else x

    weights.parent.mkdir(parents=True)
    seeded_at(job, weights)
    monkeypatch.setattr('mmseg.models.backbones.erfnet.NonBottleneck1d.forward', planted)
    # In a process of its own nothing is planted, and the repro would show nothing.
    monkeypatch.setattr('mmexport.diagnosis.session.run_alone', lambda place, found: 'alone it ends with another error: planted')
    progress = list(run(job, weights))
    # The outputs, then the diagnosis: a job that runs out of time keeps what it knows.
    assert [rows[0]['complete'] for rows in progress] == [True, True]
    row = progress[-1][0]
    assert not row['passed']
    assert not row['final']['passed'] and not row['raw']['passed']
    assert any('NonBottleneck1d' in line for line in row['diagnosis'])
    repro = (tmp_path / row['repro']).read_text()
    assert repro.count('\n') < 40
    assert any(f"repro: {row['repro']} (alone it ends with another error: planted)" in line for line in row['diagnosis'])
    assert "f'{mmseg.__path__[0]}/.mim/configs/erfnet/erfnet_fcn_4xb4-160k_cityscapes-512x1024.py'" in repro
    under = dict(torch='2.13', commit='one')
    write([{**row, 'under': under}], tmp_path / 'zoo.json', tmp_path / 'zoo.md')
    assert 'NonBottleneck1d' in (tmp_path / 'zoo.md').read_text()


def seeded_at(job: Job, weights: Path) -> None:
    from mmexport.model.config import load_config
    from mmexport.seeding.checkpoint import write_checkpoint
    from mmexport.sweep.plan import path_of
    cfg = load_config(path_of(job.config))
    cfg.merge_from_dict({'export.inputs.shape': list(job.shape or (64, 96))})
    write_checkpoint(cfg, weights)


def test_a_real_config_makes_rows_that_the_table_shows(tmp_path: Path) -> None:
    """The smallest config of mmseg at a small size, two formats in one job, through the job's own entry."""
    job = Job(ERFNET, ('torchscript', 'onnx'), (64, 96))
    rows = list(run(job, weights_of(job, tmp_path)))[-1]
    assert [row['backend'] for row in rows] == ['torchscript', 'onnx']
    assert all(row['passed'] for row in rows), rows
    for row in rows:
        # The default command's own inputs: tall, wide, small in a batch, large, odd, the photograph.
        assert row['inputs'] >= 7
        assert row['smallest'][1] <= 64 < row['largest'][1]
        assert row['final']['differs'] < 0.01
        assert row['raw']['worst'] < 1e-4
    broken = Job('mmseg::none/none.py', ('onnx',)).row('onnx', passed=False, reason='ConfigError: a | b')
    under = dict(torch='2.13', commit='one')
    write([{**rows[0], 'under': under}, {**broken, 'under': under}], tmp_path / 'zoo.json', tmp_path / 'zoo.md')
    text = (tmp_path / 'zoo.md').read_text()
    assert '| torchscript | 1 | 1 | 0 | 1 | 1 |' in text
    assert '| onnx | 1 | 0 | 1 | 1 | 0 |' in text
    assert 'ConfigError: a / b' in text
    assert len(json.loads((tmp_path / 'zoo.json').read_text())) == 2


def test_what_cannot_be_built_is_a_row_with_its_reason(tmp_path: Path) -> None:
    [[row]] = run(Job('mmseg::vpd/vpd_sd_4xb8-25k_nyu-480x480.py', ('torchscript',)), tmp_path / 'w.pth')
    assert not row['passed']
    assert 'requirements/optional.txt' in row['reason']


def test_a_process_that_takes_too_long_or_dies_is_a_row(tmp_path: Path) -> None:
    started = time.perf_counter()
    assert _run([sys.executable, '-c', 'import time; time.sleep(60)'], 1.0, 8) is None
    assert time.perf_counter() - started < 20
    assert _run([sys.executable, '-c', 'import os; os.abort()'], 30, 8) == -signal.SIGABRT
    assert _run([sys.executable, '-c', 'x = bytearray(10**9)'], 30, 0.5) == 1
    rows = work(Job(ERFNET, ('torchscript', 'onnx')).as_dict(), str(tmp_path / 'w.pth'), 0.5, 8)
    assert [row['backend'] for row in rows] == ['torchscript', 'onnx']
    assert all('not done in' in row['reason'] for row in rows)


def test_a_job_that_runs_out_of_time_keeps_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job('mmseg::a/b.py', ('torchscript', 'onnx'))

    def slow(command: list[str], limit_s: float, limit_gb: float) -> None:
        rows = [job.row('torchscript', complete=True, passed=True), job.row('onnx', complete=False, passed=False, final=dict(passed=True))]
        Path(command[-1]).write_text(json.dumps(rows))

    monkeypatch.setattr('mmexport.sweep.work._run', slow)
    first, second = work(job.as_dict(), str(tmp_path / 'w.pth'), 5, 8)
    assert first == job.row('torchscript', complete=True, passed=True)
    assert second['final'] == dict(passed=True)
    assert (second['passed'], second['reason'], second['limits']) == (False, 'not done in 5 s', [5, 8])


def test_killed_worker_ends_its_job_and_subprocesses() -> None:
    job = ('import subprocess, time; from mmexport.sweep.job import end_with_the_worker; end_with_the_worker(); '
           'print(subprocess.Popen(["sleep", "600"]).pid, flush=True); time.sleep(600)')
    worker = f'import subprocess, sys; subprocess.Popen([sys.executable, "-c", {job!r}], start_new_session=True).wait()'
    with subprocess.Popen([sys.executable, '-c', worker], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout
        started = int(killed.stdout.readline())
        killed.kill()
        # Its end closes the last copy of the pipe.
        assert killed.stdout.read() == ''
    # A process of nobody's may stay in the table until somebody looks.
    status = Path(f'/proc/{started}/status')
    assert not status.is_file() or 'State:\tZ' in status.read_text()


def test_a_crash_is_tried_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []

    def crashing(command: list[str], limit_s: float, limit_gb: float) -> int:
        codes.append(-signal.SIGSEGV)
        if len(codes) == 2:
            Path(command[-1]).write_text(json.dumps([dict(complete=True, passed=True)]))
        return codes[-1]

    monkeypatch.setattr('mmexport.sweep.work._run', crashing)
    spec = quick.jobs(1)[0].as_dict()
    assert work(spec, 'w.pth', 10, 8) == [dict(complete=True, passed=True)]
    assert len(codes) == 2
    [row] = work(spec, 'w.pth', 10, 8)
    assert len(codes) == 4
    assert row['reason'] == 'its process died with code -11, twice (a limit of 8 GB is set)'
    assert row['limits'] == [10, 8]


@pytest.mark.parametrize(('made', 'code'), [('all', 0), ('one fails', 1), ('one is lost', 1), ('interrupted', 130)])
def test_the_exit_code_is_of_what_was_asked_for(made: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    from mmexport.cli.main import run

    def swept(todo: list[Job], store: Store, *args: Any, **options: Any) -> int:
        if made == 'interrupted':
            raise KeyboardInterrupt
        for number, job in enumerate(todo):
            if made != 'one is lost' or number:
                store.keep(job.row('torchscript', passed=made != 'one fails' or number > 0, reason='planted'))
        return len(todo)

    monkeypatch.setattr('mmexport.sweep.run.sweep', swept)
    other = Store(tmp_path / 'done.sqlite', dict(commit='another'))
    other.keep(Job('mmseg::a/b.py', ('onnx',)).row('onnx', passed=False, reason='of another commit'))
    other.close()
    assert run(['sweep', '--out', str(tmp_path), '--match', 'fcn_r18b-d8', '--backend', 'torchscript']) == code
    message = capsys.readouterr().out
    assert ('1 rows of 2 are missing' in message) is (made == 'one is lost')
    assert ('the same command goes on from there' in message) is (made == 'interrupted')


def test_killed_in_the_middle_and_resumed_no_row_is_lost(tmp_path: Path) -> None:
    command = [sys.executable, '-m', 'tests.sweep.jobs', str(tmp_path), '8']
    env = {**os.environ, 'PYTHONPATH': str(ROOT), 'RAY_USAGE_STATS_ENABLED': '0'}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        assert child.stdout
        for line in child.stdout:
            if line.startswith('3/'):
                os.killpg(child.pid, signal.SIGKILL)
                break
    kept = Store(tmp_path / 'done.sqlite', quick.UNDER)
    before = len(kept.rows())
    assert before >= 3
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert f'made {8 - before}' in done.stdout
    assert len(kept.rows()) == 8
    # What was under way when it was killed, and no more, was begun twice.
    begun = (tmp_path / 'begun.txt').read_text().split()
    assert len(begun) <= 8 + 1
    assert subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout.strip() == 'made 0'


@pytest.mark.slow
def test_of_four_nodes_one_is_killed_and_no_row_is_lost(tmp_path: Path) -> None:
    """Ray's own cluster utility, in a process of its own."""
    done = subprocess.run([sys.executable, '-m', 'tests.sweep.cluster', str(tmp_path)], cwd=ROOT, capture_output=True, text=True,
                          check=False, env={**os.environ, 'PYTHONPATH': str(ROOT), 'RAY_USAGE_STATS_ENABLED': '0'}, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    store = Store(tmp_path / 'done.sqlite', quick.UNDER)
    rows = store.rows()
    assert len(rows) == 24
    assert all(row['passed'] for row in rows)


def test_the_table_says_which_sizes_a_model_takes(tmp_path: Path) -> None:
    job, under = Job('mmseg::a/b.py', ('onnx',)), dict(commit='one')
    facts = dict(traced=[512, 512], smallest=[1, 64, 64], largest=[9, 640, 640], fixed=False, passed=True, reason=None, under=under)
    other = Job('mmseg::a/c.py', ('onnx',)).row('onnx', **{**facts, 'fixed': True}, multiple_of=1)
    write([job.row('onnx', **facts, multiple_of=16), other], tmp_path / 'zoo.json', tmp_path / 'zoo.md')
    text = (tmp_path / 'zoo.md').read_text()
    assert '| 64 to 640, multiples of 16 |' in text
    assert '| 512x512 only |' in text
