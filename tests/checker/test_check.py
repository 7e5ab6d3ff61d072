"""Check what is reported of one folder: rows, times, problems of the file."""
from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from mmexport.artifact import Artifact
from mmexport.checker.check import check, verdict
from mmexport.checker.comparison import EAGER, WRITES
from mmexport.checker.samples import Sample, read_samples, write_samples
from tests.checker.folders import (
    Both,
    Lending,
    Overwriting,
    Raising,
    Remembering,
    Shifted,
    Sound,
    Wrong,
    deciding,
    folder_of,
    found_of,
)


@pytest.mark.parametrize(('module', 'words'), [
    (Sound(), None), (Remembering(), 's0 again'), (Overwriting(), 'writes into its input'),
    (Lending(), 'its next call overwrites')])
def test_stateful_files_fail(module: nn.Module, words: str | None, tmp_path: Path) -> None:
    folder = folder_of(module, tmp_path)
    reason = verdict(check(folder, folder / 'samples.npz', torch.device('cpu')))
    assert reason is None if words is None else words in str(reason)


def test_empty_samples_file_raises(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    write_samples(folder / 'samples.npz', [], dict(tolerance=1e-4, floors={}))
    with pytest.raises(ValueError, match='holds no sample'):
        check(folder, folder / 'samples.npz', torch.device('cpu'))


def test_changed_samples_are_stale(tmp_path: Path) -> None:
    """A tolerance that was loosened by hand lies in samples.npz."""
    folder = folder_of(Sound(), tmp_path)
    Artifact.read(folder).write_manifest()
    assert verdict(check(folder, folder / 'samples.npz', torch.device('cpu'))) is None
    samples, extra = read_samples(folder / 'samples.npz')
    write_samples(folder / 'samples.npz', samples, {**extra, 'tolerance': 10.0})
    assert 'samples.npz is not the file of this manifest' in str(verdict(check(folder, folder / 'samples.npz', torch.device('cpu'))))


def test_check_of_a_correct_file(tmp_path: Path) -> None:
    actual = found_of(deciding(tmp_path, Both())[0])
    assert verdict(actual) is None
    assert {key: actual[key] for key in ('backend', 'device', 'stale', 'vacuous', 'little_change', 'facts', 'classes')} == dict(
        backend='torchscript', device='cpu', stale=None, vacuous={}, little_change={}, facts={}, classes=dict(seen=[0, 1, 2], never=[3]))
    assert [(row['sample'], row['output'], row['stage'], row['passed']) for row in actual['rows']] == [
        (f's{seed}', 'labels', EAGER, True) for seed in range(3)]
    assert all(0 < actual[key] < 60 for key in ('load_s', 'run_s', 'p50_s', 'last_s'))
    assert 'older' not in actual
    assert json.loads(json.dumps(actual)) == actual


def test_raw_outputs_are_compared_if_samples_have_them(tmp_path: Path) -> None:
    folder, raw = deciding(tmp_path, Both())
    actual = found_of(folder, raw)
    assert [(row['sample'], row['output'], row['kind'], row['passed']) for row in actual['rows'][3:]] == [
        ('s0', 'logits', 'pixels', True), ('s2', 'logits', 'pixels', True)]


def test_wrong_raw_outputs_fail_with_equal_labels(tmp_path: Path) -> None:
    folder, raw = deciding(tmp_path, Shifted())
    actual = found_of(folder, raw)
    assert [row['passed'] for row in actual['rows']] == [True] * 3 + [False] * 2
    assert str(verdict(actual)).startswith('s0, logits: error ')
    assert str(verdict(actual)).endswith(' of scale, limit 0.0001 (and 1 more rows)')


class OffAtACorner(nn.Module):
    """Return two final outputs before the raw one, which is off in one pixel."""

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        off = torch.zeros_like(image)
        off[:, :, 0, 0] = 0.5
        labels = image.argmax(dim=1).int()
        return labels, labels, image * 2 + off


def test_raw_outputs_are_compared_with_their_evidence(tmp_path: Path) -> None:
    folder, raw = deciding(tmp_path, OffAtACorner())
    assert [row['passed'] for row in found_of(folder, raw)['rows'][3:]] == [False, False]
    samples, extra = read_samples(folder / 'samples.npz')
    exempt = torch.zeros(1, 8, 8, dtype=torch.bool)
    exempt[:, 0, 0] = True
    write_samples(folder / 'samples.npz', [replace(sample, raw_evidence={'exempt': exempt}) for sample in samples], extra)
    assert [row['passed'] for row in found_of(folder, raw)['rows'][3:]] == [True, True]


def test_missing_raw_file_is_a_problem(tmp_path: Path) -> None:
    folder, raw = deciding(tmp_path, Both())
    (raw / 'model.pt').unlink()
    row = found_of(folder, raw)['rows'][-1]
    assert (row['sample'], row['output'], row['stage'], row['kind'], row['tolerance']) == ('(all)', '(raw)', EAGER, 'count', 1e-4)
    assert row['problem'] == f"{raw / 'model.pt'} is missing"


def test_exception_of_the_file_is_a_problem(tmp_path: Path) -> None:
    actual = found_of(folder_of(Raising(), tmp_path))
    assert [(row['sample'], row['output'], row['kind'], row['stage'], row['tolerance']) for row in actual['rows']] == [
        ('s0', '(all)', 'count', EAGER, 1e-4), ('s1', '(all)', 'count', EAGER, 1e-4)]
    assert actual['rows'][0]['problem'].startswith('the file raised ')
    assert 'p50_s' not in actual


def test_reused_output_memory_is_a_problem(tmp_path: Path) -> None:
    row = found_of(folder_of(Lending(), tmp_path))['rows'][-1]
    assert (row['sample'], row['again'], row['output'], row['kind'], row['tolerance']) == ('s0', True, '(all)', 'count', 1e-4)
    assert row['problem'] == 'its outputs lie in memory that its next call overwrites'


def test_input_modification_is_a_problem(tmp_path: Path) -> None:
    row = found_of(folder_of(Overwriting(), tmp_path))['rows'][0]
    assert row['kind'] == WRITES
    assert row['problem'] == 'it writes into its input, so that the next user of that tensor gets something else'


def test_patched_rows_do_not_decide_the_verdict(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    samples, extra = read_samples(folder / 'samples.npz')
    patched = [replace(sample, patched={'logits': sample.expected['logits'] + 1}) for sample in samples]
    write_samples(folder / 'samples.npz', patched, extra)
    actual = found_of(folder)
    assert [(row['stage'], row['passed']) for row in actual['rows']] == [(EAGER, True), ('artifact vs patched', False)] * 2
    assert verdict(actual) is None


def test_floors_and_tolerance_come_from_samples(tmp_path: Path) -> None:
    folder = folder_of(Wrong(), tmp_path)
    samples, _ = read_samples(folder / 'samples.npz')
    assert sum(bool(sample.image[0, 0, 0, 0] < -1.3) for sample in samples) == 1
    assert verdict(found_of(folder)) is not None
    write_samples(folder / 'samples.npz', samples, dict(tolerance=0.5, floors={'logits': 0.25}))
    actual = found_of(folder)
    assert [(row['tolerance'], row['floor']) for row in actual['rows'] if not row['again']] == [(0.5, 0.25)] * 2


def test_stored_judgement_is_used_without_a_pair(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    images = [torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 12)]
    samples = [Sample(f's{number}', image, {'logits': Sound()(image)}) for number, image in enumerate(images)]
    write_samples(folder / 'samples.npz', samples, dict(tolerance=1e-4, floors={}))
    assert 'no two samples have the same shape' in str(verdict(found_of(folder)))
    judged = dict(vacuous={}, little_change={'logits': 'as the export said'}, classes=None)
    write_samples(folder / 'samples.npz', samples, dict(tolerance=1e-4, floors={}, judged=judged))
    actual = found_of(folder)
    assert {key: actual[key] for key in judged} == judged
    assert verdict(actual) is None
    # Where a pair is there, what the folder says about itself is not read.
    twice = [samples[0], replace(samples[0], name='again')]
    write_samples(folder / 'samples.npz', twice, dict(tolerance=1e-4, floors={}, judged=judged))
    assert str(verdict(found_of(folder))).startswith("vacuous: logits: another input's answer would pass")


def test_older_manifest_adds_a_note(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    manifest = json.loads((folder / 'manifest.json').read_text())
    (folder / 'manifest.json').write_text(json.dumps({**manifest, 'mmexport': 1}))
    actual = found_of(folder)
    assert actual['older'] == 'its manifest has schema 1, which declares no ranges of sizes: only its samples are checked'
    assert verdict(actual) is None


def test_stale_folder_is_not_loaded(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    (folder / 'model.pt').write_bytes(b'cut short')
    actual = found_of(folder)
    assert actual['rows'] == [] and actual['vacuous'] == {} and 'load_s' not in actual
    assert verdict(actual) == actual['stale']
    assert actual['stale'].startswith('model.pt is not the file of this manifest (sha256 ')


def test_missing_samples_file_raises(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    (folder / 'samples.npz').unlink()
    with pytest.raises(ValueError, match=r'samples.npz is missing \(--no-verify, --no-samples, or too large to be kept\): there is '
                                         'nothing to compare with$'):
        found_of(folder)


def test_check_disables_tf32(tmp_path: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    found_of(folder_of(Sound(), tmp_path))
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (False, False)


def test_check_notes_facts_and_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(Sound(), tmp_path)
    module = SimpleNamespace(load=lambda file, device: Sound(), facts=lambda runner: {'runner': type(runner).__name__})
    monkeypatch.setattr('mmexport.checker.files.runner_of', lambda manifest: module)
    monkeypatch.setattr('mmexport.checker.check.runner_of', lambda manifest: module)
    for name in ('mmfake', 'mmfake.part', 'mmap', 'otherfake'):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    actual = found_of(folder)
    assert actual['facts'] == {'runner': 'Sound'}
    assert 'mmfake' in actual['foreign_modules'] and not {'mmfake.part', 'mmap', 'otherfake'} & set(actual['foreign_modules'])


def test_check_times_the_first_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, timed = folder_of(Sound(), tmp_path), []
    sound = Sound()

    def typical(run: Callable[[], Any], device: torch.device) -> float:
        shown.clear()
        run()
        timed.append((shown[0], device))
        return 7.0

    shown: list[torch.Tensor] = []
    module = SimpleNamespace(load=lambda file, device: lambda image: (shown.append(image.clone()), sound(image))[1])
    clock = itertools.count()
    monkeypatch.setattr('mmexport.checker.files.runner_of', lambda manifest: module)
    monkeypatch.setattr('mmexport.checker.check.typical', typical)
    monkeypatch.setattr('mmexport.checker.check.time', SimpleNamespace(perf_counter=lambda: next(clock)))
    actual = found_of(folder)
    (image, device), = timed
    assert torch.equal(image, read_samples(folder / 'samples.npz')[0][0].image)
    assert device == torch.device('cpu')
    assert {key: actual[key] for key in ('load_s', 'run_s', 'p50_s', 'last_s')} == dict(load_s=1, run_s=1, p50_s=7.0, last_s=1)
