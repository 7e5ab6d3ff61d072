"""The program on files that misbehave: made here, with torch alone."""
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmexport.artifact import Artifact
from mmexport.checking.comparison import Comparison
from mmexport.checking.main import EAGER, check, judge_samples, main, table, verdict
from mmexport.checking.samples import Sample, read_samples, write_samples
from mmexport.delivery import _refuse_what_was_changed
from mmexport.errors import ConfigError, VerificationError
from mmexport.inputs.shapes import plan_shapes
from mmexport.inputs.size_rules import SizeRules
from tests.checking.made import INSTANCE, instances

SPECS = [dict(name='logits', dtype='float32', axes=['batch', 'class', 'h', 'w'], kind='pixels')]


class Sound(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return torch.cat([image * 2, image.flip(-1)], dim=1)


class Remembering(nn.Module):
    """Right for the first six calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Tensor
        self.register_buffer('calls', torch.zeros(()))

    def forward(self, image: Tensor) -> Tensor:
        self.calls += 1
        return torch.cat([image * 2, image.flip(-1)], dim=1) * (1 + (self.calls > 6).float() * 0.5)


class Overwriting(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        found = torch.cat([image * 2, image.flip(-1)], dim=1)
        image.mul_(0.5)
        return found


class Lending(nn.Module):
    """Answers with memory of its own, as a captured CUDA graph does."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Tensor
        self.register_buffer('answer', torch.zeros(1, 6, 8, 8))

    def forward(self, image: Tensor) -> Tensor:
        return self.answer.copy_(torch.cat([image * 2, image.flip(-1)], dim=1))


def folder_of(module: nn.Module, folder: Path) -> Path:
    torch.jit.save(torch.jit.script(module), str(folder / 'model.pt'))
    Artifact('torchscript', folder / 'model.pt', dict(outputs=SPECS, num_classes=6, backend='torchscript')).write_manifest()
    samples = []
    for seed in range(2):
        image = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        samples.append(Sample(f's{seed}', image, {'logits': Sound()(image)}))
    write_samples(folder / 'samples.npz', samples, dict(tolerance=1e-4, floors={}))
    return folder


@pytest.mark.parametrize(('module', 'words'), [
    (Sound(), None), (Remembering(), 's0 again'), (Overwriting(), 'writes into its input'),
    (Lending(), 'the next call writes over')])
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


def test_file_changed_after_check_is_not_delivered(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    artifact = Artifact.read(folder)
    _refuse_what_was_changed(artifact)
    torch.jit.save(torch.jit.script(Remembering()), str(folder / 'model.pt'))
    with pytest.raises(VerificationError, match='after it was checked'):
        _refuse_what_was_changed(artifact)


@pytest.mark.parametrize('shapes', [[], [(64, 64)]])
def test_dynamic_axis_needs_a_varying_input(shapes: list[tuple[int, int]]) -> None:
    section = dict(inputs=dict(dynamic=('batch', 'height', 'width')), verify=dict(shapes=shapes, batch=2))
    with pytest.raises(ConfigError, match='no input of export.verify.shapes varies it from 64'):
        plan_shapes((1, 3, 64, 64), section, SizeRules())


def test_missing_folder_and_missing_manifest_differ(tmp_path: Path) -> None:
    for folder, words in ((tmp_path / 'none', 'no such folder'), (tmp_path, 'no manifest.json')):
        with pytest.raises(ValueError, match=words):
            check(folder, folder / 'samples.npz', torch.device('cpu'))


class Raising(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        if image.numel() > 0:
            raise ValueError('first line\n\n  the last line  \n')
        return image


class Wrong(nn.Module):
    """Off by a half on the second of its samples."""

    def forward(self, image: Tensor) -> Tensor:
        off = 0.5 if bool(image[0, 0, 0, 0] < -1.3) else 0.0
        return torch.cat([image * 2 + off, image.flip(-1)], dim=1)


class Deciding(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return image.argmax(dim=1).int()


class Both(nn.Module):
    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return image.argmax(dim=1).int(), image * 2


LABELS = [dict(name='labels', dtype='int32', kind='labels')]
RAW = [dict(name='logits', dtype='float32', kind='pixels')]


def deciding(tmp_path: Path, raw: nn.Module) -> tuple[Path, Path]:
    """A folder of labels, and one with the graph that they were cut from."""
    folders = tmp_path / 'final', tmp_path / 'raw'
    samples = []
    for seed in range(3):
        image = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        samples.append(Sample(f's{seed}', image, {'labels': image.argmax(1).int()}, raw={'logits': image * 2} if seed != 1 else {}))
    for place, module in zip(folders, (Deciding(), raw), strict=True):
        place.mkdir()
        torch.jit.save(torch.jit.script(module), str(place / 'model.pt'))
        content = dict(outputs=LABELS, raw=RAW, num_classes=4, backend='torchscript', mmexport=2)
        Artifact('torchscript', place / 'model.pt', content).write_manifest()
    write_samples(folders[0] / 'samples.npz', samples, dict(tolerance=1e-4, floors={}))
    return folders


def found_of(folder: Path, raw: Path | None = None) -> dict[str, Any]:
    return check(folder, folder / 'samples.npz', torch.device('cpu'), raw)


def test_check_of_a_correct_file(tmp_path: Path) -> None:
    found = found_of(deciding(tmp_path, Both())[0])
    assert verdict(found) is None
    assert {key: found[key] for key in ('backend', 'device', 'stale', 'vacuous', 'little_change', 'facts', 'classes')} == dict(
        backend='torchscript', device='cpu', stale=None, vacuous={}, little_change={}, facts={}, classes=dict(seen=[0, 1, 2], never=[3]))
    assert [(row['sample'], row['output'], row['stage'], row['passed']) for row in found['rows']] == [
        (f's{seed}', 'labels', EAGER, True) for seed in range(3)]
    assert all(0 < found[key] < 60 for key in ('load_s', 'run_s', 'p50_s', 'last_s'))
    assert 'older' not in found
    assert json.loads(json.dumps(found)) == found


def test_raw_outputs_are_compared_if_samples_have_them(tmp_path: Path) -> None:
    folder, raw = deciding(tmp_path, Both())
    found = found_of(folder, raw)
    assert [(row['sample'], row['output'], row['kind'], row['passed']) for row in found['rows'][3:]] == [
        ('s0', 'logits', 'pixels', True), ('s2', 'logits', 'pixels', True)]


class Shifted(nn.Module):
    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return image.argmax(dim=1).int(), image * 2 + 0.1


def test_wrong_raw_outputs_fail_with_equal_labels(tmp_path: Path) -> None:
    folder, raw = deciding(tmp_path, Shifted())
    found = found_of(folder, raw)
    assert [row['passed'] for row in found['rows']] == [True] * 3 + [False] * 2
    assert str(verdict(found)).startswith('s0, logits: off by ')
    assert str(verdict(found)).endswith(' of scale, 0.0001 may be (and 1 more rows)')


def test_missing_raw_file_is_a_problem(tmp_path: Path) -> None:
    folder, raw = deciding(tmp_path, Both())
    (raw / 'model.pt').unlink()
    row = found_of(folder, raw)['rows'][-1]
    assert (row['sample'], row['output'], row['stage'], row['kind'], row['tolerance']) == ('(all)', '(raw)', EAGER, 'count', 1e-4)
    assert row['problem'] == f"{raw / 'model.pt'} is missing"


def test_exception_of_the_file_is_a_problem(tmp_path: Path) -> None:
    found = found_of(folder_of(Raising(), tmp_path))
    assert [(row['sample'], row['output'], row['kind'], row['stage'], row['tolerance']) for row in found['rows']] == [
        ('s0', '(all)', 'count', EAGER, 1e-4), ('s1', '(all)', 'count', EAGER, 1e-4)]
    assert found['rows'][0]['problem'].startswith('the file raised ')
    assert 'p50_s' not in found


def test_reused_output_memory_is_a_problem(tmp_path: Path) -> None:
    row = found_of(folder_of(Lending(), tmp_path))['rows'][-1]
    assert (row['sample'], row['output'], row['stage'], row['kind'], row['tolerance']) == ('s0 again', '(all)', EAGER, 'count', 1e-4)
    assert row['problem'] == 'its answers lie in memory of its own, which the next call writes over'


def test_input_modification_is_a_problem(tmp_path: Path) -> None:
    assert found_of(folder_of(Overwriting(), tmp_path))['rows'][0]['problem'] == (
        'the file raised ValueError: it writes into its input, so that the next user of that tensor gets something else')


def test_patched_rows_do_not_decide_the_verdict(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    samples, extra = read_samples(folder / 'samples.npz')
    patched = [replace(sample, patched={'logits': sample.expected['logits'] + 1}) for sample in samples]
    write_samples(folder / 'samples.npz', patched, extra)
    found = found_of(folder)
    assert [(row['stage'], row['passed']) for row in found['rows']] == [(EAGER, True), ('artifact vs patched', False)] * 2
    assert verdict(found) is None


def test_floors_and_tolerance_come_from_samples(tmp_path: Path) -> None:
    folder = folder_of(Wrong(), tmp_path)
    samples, _ = read_samples(folder / 'samples.npz')
    assert sum(bool(sample.image[0, 0, 0, 0] < -1.3) for sample in samples) == 1
    assert verdict(found_of(folder)) is not None
    write_samples(folder / 'samples.npz', samples, dict(tolerance=0.5, floors={'logits': 0.25}))
    found = found_of(folder)
    assert [(row['tolerance'], row['floor']) for row in found['rows'] if not row['sample'].endswith(' again')] == [(0.5, 0.25)] * 2


def test_stored_judgement_is_used_without_a_pair(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    images = [torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 12)]
    samples = [Sample(f's{number}', image, {'logits': Sound()(image)}) for number, image in enumerate(images)]
    write_samples(folder / 'samples.npz', samples, dict(tolerance=1e-4, floors={}))
    assert 'no two samples have the same shape' in str(verdict(found_of(folder)))
    judged = dict(vacuous={}, little_change={'logits': 'as the export said'}, classes=None)
    write_samples(folder / 'samples.npz', samples, dict(tolerance=1e-4, floors={}, judged=judged))
    found = found_of(folder)
    assert {key: found[key] for key in judged} == judged
    assert verdict(found) is None
    # Where a pair is there, what the folder says about itself is not read.
    twice = [samples[0], replace(samples[0], name='again')]
    write_samples(folder / 'samples.npz', twice, dict(tolerance=1e-4, floors={}, judged=judged))
    assert str(verdict(found_of(folder))).startswith("vacuous: logits: another input's answer would pass")


def test_older_manifest_adds_a_note(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    manifest = json.loads((folder / 'manifest.json').read_text())
    (folder / 'manifest.json').write_text(json.dumps({**manifest, 'mmexport': 1}))
    found = found_of(folder)
    assert found['older'] == 'its manifest has schema 1, which declares no ranges of sizes: only its samples are checked'
    assert verdict(found) is None


def test_stale_folder_is_not_loaded(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    (folder / 'model.pt').write_bytes(b'cut short')
    found = found_of(folder)
    assert found['rows'] == [] and 'load_s' not in found
    assert verdict(found) == found['stale']
    assert found['stale'].startswith('model.pt is not the file of this manifest (sha256 ')


def test_missing_samples_file_raises(tmp_path: Path) -> None:
    folder = folder_of(Sound(), tmp_path)
    (folder / 'samples.npz').unlink()
    with pytest.raises(ValueError, match=r'samples.npz is missing \(--no-verify, --no-samples, or too large to be kept\): there is '
                                         'nothing to compare with$'):
        found_of(folder)


@pytest.mark.parametrize(('found', 'words'), [
    (dict(stale='old', rows=[], vacuous={}), 'old'),
    (dict(stale=None, rows=[], vacuous={}), 'nothing was compared with eager'),
    (dict(stale=None, rows=[Comparison('s', 'o', 'artifact vs patched', 'labels', 1e-4, beyond=0.0).as_dict()], vacuous={}),
     'nothing was compared with eager'),
    (dict(stale=None, rows=[Comparison('s', 'o', EAGER, 'labels', 1e-4, beyond=0.0).as_dict()], vacuous={'o': 'why'}), 'vacuous: o: why'),
    (dict(stale=None, rows=[Comparison('s', 'o', EAGER, 'labels', 1e-4, beyond=0.0).as_dict()], vacuous={}), None),
    (dict(stale=None, rows=[Comparison('s', 'o', EAGER, 'labels', 1e-4, problem='no').as_dict()], vacuous={'o': 'why'}), 's, o: no'),
    (dict(stale=None, rows=[Comparison(name, 'o', EAGER, 'labels', 1e-4, problem='no').as_dict() for name in 'abc'], vacuous={}),
     'a, o: no (and 2 more rows)')])
def test_verdict_returns_the_first_reason(found: dict[str, Any], words: str | None) -> None:
    assert verdict(found) == words


def test_table_text() -> None:
    rows = [Comparison('traced', 'logits', EAGER, 'pixels', 1e-4, max_rel=2.34e-6, cosine=0.99999949, beyond=0.0, median=0.0),
            Comparison('traced', 'logits', 'artifact vs patched', 'pixels', 1e-4, problem='not shown'),
            Comparison('tall', 'labels', EAGER, 'labels', 1e-4, beyond=0.5)]
    found = dict(stale=None, vacuous={}, device='cpu', rows=[row.as_dict() for row in rows])
    assert table(found).splitlines() == [
        'sample          output         max rel    cosine  result',
        'traced          logits         2.3e-06  0.999999  pass',
        'tall            labels               -         -  FAIL',
        'FAIL: tall, labels: 50.00% differs where eager is clear, 0.00% may']
    passing = table({**found, 'rows': found['rows'][:1], 'older': 'word ' * 20}).splitlines()  # type: ignore[index]
    assert passing[2:] == [('word ' * 16).strip(), ('word ' * 4).strip(), 'PASS on cpu']


def test_main_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ('sound', 'wrong', 'empty'):
        (tmp_path / name).mkdir()
    sound, wrong = folder_of(Sound(), tmp_path / 'sound'), folder_of(Wrong(), tmp_path / 'wrong')
    assert main([str(sound)]) == 0
    assert capsys.readouterr().out.endswith('PASS on cpu\n')
    assert main([str(wrong)]) == 1
    assert 'FAIL: s' in capsys.readouterr().out
    assert main([str(tmp_path / 'empty')]) == 2
    empty = tmp_path / 'empty'
    assert capsys.readouterr().err == (f'{empty} cannot be checked: ValueError: there is no manifest.json in {empty}; name the folder of '
                                       'one format, as WORK_DIR/torchscript\n')
    assert main([str(sound), '--samples', str(wrong / 'samples.npz'), '--out', str(tmp_path / 'found.json')]) == 0
    assert capsys.readouterr().out == ''
    assert [row['passed'] for row in json.loads((tmp_path / 'found.json').read_text())['rows']] == [True, True]


def test_main_passes_raw_and_trust(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, raw = deciding(tmp_path, Shifted())
    assert main([str(folder)]) == 0
    assert main([str(folder), '--raw', str(raw)]) == 1
    manifest = json.loads((folder / 'manifest.json').read_text())
    (folder / 'manifest.json').write_text(json.dumps({**manifest, 'backend': 'aotinductor'}))
    capsys.readouterr()
    assert main([str(folder)]) == 2
    assert '--trust, if you trust who made it' in capsys.readouterr().err
    assert main([str(folder), '--trust']) == 2
    assert '--trust' not in capsys.readouterr().err


def test_main_without_cuda_exits_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    assert main([str(tmp_path), '--device', 'cuda:0']) == 3
    assert capsys.readouterr().err == f'cuda:0 was asked for, and torch {torch.__version__} sees no CUDA device here\n'


def test_check_disables_tf32(tmp_path: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    found_of(folder_of(Sound(), tmp_path))
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (False, False)


def test_classes_decided_in_samples() -> None:
    def judged(specs: list[dict[str, str]], classes: int, **expected: Tensor) -> Any:
        samples = [Sample('a', torch.zeros(1, 3, 4, 4), expected)]
        return judge_samples(dict(outputs=specs, num_classes=classes), samples, dict(tolerance=1e-4, floors={}))['classes']

    labels = torch.tensor([[[0, 2], [2, 255]]], dtype=torch.int32)
    assert judged(LABELS, 4, labels=labels) == dict(seen=[0, 2], never=[1, 3])
    assert judged(LABELS, 1, labels=labels.clamp_max(1)) == dict(seen=[0, 1], never=[])
    segments = torch.tensor([[[1003, 2003], [1, 4]]], dtype=torch.int32)
    assert judged([dict(name='panoptic', kind='panoptic')], 4, panoptic=segments) == dict(seen=[1, 3], never=[0, 2])
    rows = instances()
    assert judged(INSTANCE, 4, **rows) == dict(seen=[1, 2], never=[0, 3])
    assert judged(RAW, 4, logits=torch.zeros(1, 4, 2, 2)) is None


def test_little_change_uses_the_first_equal_shaped_pair() -> None:
    def sample(name: str, side: int, value: float) -> Sample:
        image = torch.zeros(1, 3, side, side)
        return Sample(name, image, {'logits': torch.full((1, 2, side, side), value)})

    manifest = dict(outputs=RAW, num_classes=2)
    extra = dict(tolerance=1e-4, floors={})
    assert judge_samples(manifest, [sample('a', 4, 1.0), sample('b', 6, 1.0)], extra)['little_change'] == {}
    little = judge_samples(manifest, [sample('a', 4, 1.0), sample('b', 6, 1.0), sample('c', 4, 1.0)], extra)['little_change']
    assert little == {'logits': 'only 0% of the channels change by 100 tolerances between two inputs (95% must)'}
    assert judge_samples(manifest, [sample('a', 4, 1.0), sample('c', 4, 2.0)], extra)['little_change'] == {}
