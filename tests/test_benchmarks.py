"""Test the scripts that measure, small: they must run where there is no GPU and write what they promise."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.train_detectors import CONFIGS, STEPS, fit
from mmexport.model.build import build_model
from mmexport.model.config import load_config
from tests.tools.test_tools import ENV, ROOT


def run(script: str, *args: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, str(ROOT / 'benchmarks' / script), *map(str, args)], capture_output=True, text=True, env=ENV,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_gpu_acceptance_runs_on_the_cpu(tmp_path: Path) -> None:
    out = tmp_path / 'cpu.json'
    run('gpu_acceptance.py', '--device', 'cpu', '--tiny', '--no-faults', '--no-ops', '--calls', 3, '--out', out, '--models',
        'mask2former_r50', 'segformer_b0', 'pointrend')
    content = json.loads(out.read_text())
    assert content['card'] is None
    assert content['versions']['torch']
    assert len(content['rows']) == 3
    for row in content['rows']:
        assert list(row['checks']) == ['lowered on cpu, run on cpu']
        assert row['passed']
        assert row['latency']['tf32 off']['artifact']['p50_ms'] > 0
        assert row['peak_memory_bytes'] is None


def test_planted_device_faults_match_predictions(tmp_path: Path) -> None:
    """On a CPU only dtypes crash; the fixing and the files are the same as on CUDA."""
    code = ('import json, sys, torch; sys.path[0] = sys.argv[1]; import gpu_faults; '
            'print(json.dumps(gpu_faults.rows(torch.device("cpu"), ["own"])))')
    done = subprocess.run([sys.executable, '-c', code, str(ROOT / 'benchmarks')], capture_output=True, text=True, env=ENV, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(done.stdout.splitlines()[-1])
    assert len(rows) == 22
    assert all(row['passed'] for row in rows), [row for row in rows if not row['passed']]


def test_ops_agree_with_mmcv_and_are_timed(tmp_path: Path) -> None:
    out = tmp_path / 'ops.json'
    run('op_speed.py', '--rounds', 2, '--boxes', 150, '--out', out)
    rows = json.loads(out.read_text())['rows']
    assert [row['op'] for row in rows] == ['NMS'] * 3 + ['RoIAlign'] * 2 + ['DCN', 'DCNv2'] * 2
    assert all(row['error'] < 1e-4 and row['ratio']['median'] > 0 and row['kernels'] for row in rows)


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
    for actual in row['formats'].values():
        assert 0.05 < actual['ratio']['median'] < 20
        assert actual['p95_s'] >= actual['p50_s'] > 0
        assert actual['call_1_s'] > 0
    assert row['others'] >= 0
    assert set(row['made_at']) == {'torchscript', 'torch_export'}
    assert 'not recorded' not in row['made_at'].values()
    # Of a file that is not there any more it says so, and makes it anew; the other one stays as it is.
    kept = (tmp_path / 'files' / 'segformer_b0' / 'torch_export' / 'model.pt2').stat().st_mtime_ns
    (tmp_path / 'files' / 'segformer_b0' / 'torchscript' / 'manifest.json').unlink()
    run(*command)
    assert (tmp_path / 'files' / 'segformer_b0' / 'torch_export' / 'model.pt2').stat().st_mtime_ns == kept


def test_verify_configs_summarises_reports(tmp_path: Path) -> None:
    out = tmp_path / 'verify.json'
    run('verify_configs.py', '--configs', 'segformer_b0', '--size', 96, 128, '--outputs', 'raw', '--out', out)
    row = json.loads(out.read_text())['rows'][0]
    assert row['passed']
    assert row['worst']['logits'] < 1e-4
    assert 'another size' in row['samples']


def test_rows_of_a_sweep_join_the_recorded_ones(tmp_path: Path) -> None:
    """The newer row of one config and format stays, and says nothing of where packages lay."""
    row = dict(config='mmseg::a/b.py', backend='onnx', shape=[64, 64], images=[], passed=True, reason=None, under=dict(commit='one'))
    old = {**row, 'passed': False, 'reason': 'it broke', 'at': '2026-01-01 00:00:00'}
    new = {**old, 'reason': "File '/home/me/lib/site-packages/mmseg/x.py'", 'repro': 'repros/r.py', 'at': '2026-01-02 00:00:00'}
    other = {**row, 'backend': 'openvino', 'at': '2026-01-01 00:00:00'}
    recorded, swept, doc = tmp_path / 'zoo.json', tmp_path / 'swept.json', tmp_path / 'zoo.md'
    recorded.write_text(json.dumps([new, other]))
    swept.write_text(json.dumps([old, {**new, 'under': dict(commit='two'), 'at': '2026-01-03 00:00:00'}]))
    run('zoo.py', swept, '--recorded', recorded, '--doc', doc)
    rows = {actual['backend']: actual for actual in json.loads(recorded.read_text())}
    assert rows['onnx']['under'] == dict(commit='two')
    assert rows['onnx']['reason'] == "File 'mmseg/x.py'"
    assert 'repro' not in rows['onnx']
    assert rows['openvino']['passed']
    assert '| onnx | 1 | 0 | 1 | 1 | 0 |' in doc.read_text()


@pytest.mark.parametrize('name', sorted(STEPS))
def test_the_trained_detectors_can_be_trained_again(name: str) -> None:
    """The committed checkpoints name this command; a model of boxes alone gets no masks, which RTMDet's assigner would not take."""
    model: Any = build_model(load_config(CONFIGS / f'{name}.py'))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    fit(model, name, steps=1, batch=2)
    assert not model.training and any(not torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
