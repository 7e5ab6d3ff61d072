"""The scripts that measure, small: they must run where there is no GPU and write what they promise."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.tools.test_tools import ENV, ROOT


def run(script: str, *args: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, str(ROOT / 'benchmarks' / script), *map(str, args)], capture_output=True, text=True, env=ENV,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_gpu_acceptance_runs_on_the_cpu(tmp_path: Path) -> None:
    out = tmp_path / 'cpu.json'
    run('gpu_acceptance.py', '--device', 'cpu', '--tiny', '--no-faults', '--calls', 3, '--out', out)
    content = json.loads(out.read_text())
    assert content['card'] is None
    assert content['versions']['torch']
    assert len(content['rows']) == 7
    for row in content['rows']:
        assert list(row['checks']) == ['lowered on cpu, run on cpu']
        assert row['passed']
        assert row['latency']['tf32 off']['artifact']['p50_ms'] > 0
        assert row['peak_memory_bytes'] is None


def test_planted_device_faults_do_what_was_foretold(tmp_path: Path) -> None:
    """On a CPU only dtypes crash; the mending and the files are the same as on CUDA."""
    code = ('import json, sys, torch; sys.path[0] = sys.argv[1]; import gpu_faults; '
            'print(json.dumps(gpu_faults.rows(torch.device("cpu"), ["own"])))')
    done = subprocess.run([sys.executable, '-c', code, str(ROOT / 'benchmarks')], capture_output=True, text=True, env=ENV, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(done.stdout.splitlines()[-1])
    assert len(rows) == 22
    assert all(row['passed'] for row in rows), [row for row in rows if not row['passed']]


def test_latency_measures_in_turn(tmp_path: Path) -> None:
    out = tmp_path / 'latency.json'
    run('latency.py', '--configs', 'segformer_b0', '--size', 64, 64, '--rounds', 2, '--out', out)
    row = json.loads(out.read_text())['rows'][0]
    assert row['cpu_ratio']['eager'] == 1.0
    assert set(row['wall_ratio']) == {'eager', 'plain trace', 'artifact'}


def test_formats_are_made_verified_and_timed_in_turn(tmp_path: Path) -> None:
    out = tmp_path / 'speed.json'
    command = ('formats.py', '--configs', 'segformer_b0', '--formats', 'torchscript', 'torch_export', '--size', 96, 128, '--rounds', 3,
               '--work-dir', tmp_path / 'files', '--out', out)
    run(*command)
    row = json.loads(out.read_text())['rows'][0]
    assert set(row['formats']) == {'torchscript', 'torch_export'}
    assert row['eager']['ratio']['median'] == 1.0
    for found in row['formats'].values():
        assert 0.05 < found['ratio']['median'] < 20
        assert found['p95_s'] >= found['p50_s'] > 0
        assert found['call_1_s'] > 0
    assert row['others'] >= 0
    assert set(row['made_at']) == {'torchscript', 'torch_export'}
    assert 'not recorded' not in row['made_at'].values()
    # Of a file that is not there any more it says so, and makes it anew; the other one stays as it is.
    kept = (tmp_path / 'files' / 'segformer_b0' / 'torchscript' / 'model.pt').stat().st_mtime_ns
    (tmp_path / 'files' / 'segformer_b0' / 'torch_export' / 'manifest.json').unlink()
    run(*command)
    assert (tmp_path / 'files' / 'segformer_b0' / 'torchscript' / 'model.pt').stat().st_mtime_ns == kept


def test_verify_configs_summarises_reports(tmp_path: Path) -> None:
    out = tmp_path / 'verify.json'
    run('verify_configs.py', '--configs', 'segformer_b0', '--size', 96, 128, '--outputs', 'raw', '--out', out)
    row = json.loads(out.read_text())['rows'][0]
    assert row['passed']
    assert row['worst']['logits'] < 1e-4
    assert 'another size' in row['samples']
