"""Check what is asked of the fresh process, and what is made of its answer; the process is stood for by its program in this one."""
from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmexport.artifact import Artifact
from mmexport.backends.torchscript import runner as torchscript_runner
from mmexport.checker.comparison import EAGER, Comparison
from mmexport.checker.main import main
from mmexport.checker.samples import Sample, read_samples
from mmexport.verification.patched_eager import patched_rows
from mmexport.verification.verify import Verification, keep_samples, verify

RUNNER = Path(torchscript_runner.__file__)
CPU = torch.device('cpu')
SPECS = [dict(name='logits', dtype='float32', axes=['batch', 'class', 'h', 'w'], kind='pixels')]


class Doubling(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return image * 2


class Unsteady(nn.Module):
    """Be off by a little where the picture is wide."""

    def forward(self, image: Tensor) -> Tensor:
        actual = image * 2
        if image.shape[3] > 8:
            actual[:, :, 0, 0] += 1e-3
        return actual


class InProcess:
    """Check in this process instead of a fresh one."""

    def __init__(self, backend: str = 'torchscript', answers: tuple[int, str] | None = None, idle: bool = True) -> None:
        self.backend, self.answers, self.idle, self.asked = backend, answers, idle, list[list[str]]()
        self.samples: list[str] = []

    def run(self, asked: Sequence[str]) -> tuple[int, str]:
        self.asked.append(list(asked))
        self.samples = [sample.name for sample in read_samples(Path(asked[2]))[0]]
        self.idle = False
        return self.answers or (main(asked), '')


def artifact(folder: Path, module: nn.Module, backend: str = 'torchscript') -> Artifact:
    folder.mkdir()
    torch.jit.save(torch.jit.script(module), str(folder / 'model.pt'))
    made = Artifact(backend, folder / 'model.pt', dict(outputs=SPECS, num_classes=3, backend='torchscript', mmexport=2))
    made.write_manifest()
    return made


def samples() -> list[Sample]:
    images = {name: torch.randn(1, 3, 8, width, generator=torch.Generator().manual_seed(seed))
              for seed, (name, width) in enumerate([('traced', 8), ('same shape', 8), ('wide', 12), ('tall', 8)])}
    return [Sample(name, image, {'logits': image * 2}) for name, image in images.items()]


def judged(made: Artifact, given: Sequence[Sample], tmp_path: Path, process: Any, **more: Any) -> Verification:
    return verify(made, given, 1e-4, CPU, tmp_path / 'scratch' / 'deep', process, **more)


def test_verify_writes_all_samples_and_cleans_up(tmp_path: Path) -> None:
    made, process = artifact(tmp_path / 'a', Doubling()), InProcess()
    check = judged(made, samples(), tmp_path, process, raw=None)
    assert (check.passed, check.reason, check.failed_samples, check.died) == (True, None, set(), False)
    assert check.backend == 'torchscript'
    assert [row.sample for row in check.rows] == ['traced', 'same shape', 'wide', 'tall']
    assert check.result is not None and check.seconds == check.result['p50_s'] > 0
    scratch = tmp_path / 'scratch' / 'deep'
    assert process.asked == [[str(tmp_path / 'a'), '--samples', str(scratch / 'all_samples.npz'), '--device', 'cpu', '--out',
                              str(scratch / 'answers.json'), '--trust', '--runner', str(RUNNER)]]
    assert list(scratch.iterdir()) == []


def test_verify_uses_floors_of_all_samples(tmp_path: Path) -> None:
    given = samples()
    given[1] = replace(given[1], floors={'logits': 0.25})
    check = judged(artifact(tmp_path / 'a', Doubling()), given, tmp_path, InProcess())
    assert {row.floor for row in check.rows} == {0.25}
    assert {row.tolerance for row in check.rows} == {1e-4}


def test_verify_passes_the_raw_folder(tmp_path: Path) -> None:
    made, process = artifact(tmp_path / 'a', Doubling()), InProcess(answers=(2, 'no'))
    judged(made, samples(), tmp_path, process, raw=tmp_path / 'raw')
    assert process.asked[0][-4:-2] == ['--raw', str(tmp_path / 'raw')]


@pytest.mark.parametrize(('code', 'said', 'problem', 'died'), [
    (-11, 'first\nthe last line\n', 'the process that checks model.pt died with code -11: the last line', True),
    (2, '', 'the process that checks model.pt ended with code 2: (no message)', False),
    (0, 'x' * 400, f"the process that checks model.pt ended with code 0: {'x' * 300}", False)])
def test_verify_without_result_file_fails(code: int, said: str, problem: str, died: bool, tmp_path: Path) -> None:
    check = judged(artifact(tmp_path / 'a', Doubling()), samples(), tmp_path, InProcess(answers=(code, said)))
    row, = check.rows
    assert (row.sample, row.output, row.stage, row.kind, row.tolerance, row.problem) == ('(all)', '(all)', EAGER, 'count', 1e-4, problem)
    assert check.backend == 'torchscript'
    assert (check.died, check.passed, check.reason, check.seconds) == (died, False, f'(all), (all): {problem}', None)
    assert check.result == dict(stale=None, rows=[row.as_dict()], vacuous={}, little_change={}, classes=None, died=died)
    assert not (tmp_path / 'scratch' / 'deep' / 'all_samples.npz').exists()


@pytest.mark.parametrize('given', [None, InProcess(backend='onnx'), InProcess(idle=False)])
def test_verify_starts_a_process_if_none_fits(given: InProcess | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, process = [], InProcess()

    @contextmanager
    def waiting(backend: str, scratch: Path, runner: Path) -> Iterator[InProcess]:
        started.append((backend, scratch, runner))
        yield process

    monkeypatch.setattr('mmexport.verification.verify.waiting', waiting)
    assert judged(artifact(tmp_path / 'a', Doubling()), samples(), tmp_path, given).passed
    assert started == [('torchscript', tmp_path / 'scratch' / 'deep', RUNNER)]
    assert len(process.asked) == 1
    assert not given or not given.asked


def test_second_verify_reruns_failed_samples_only(tmp_path: Path) -> None:
    made, given = artifact(tmp_path / 'a', Unsteady()), samples()
    first = judged(made, given, tmp_path, InProcess())
    assert (first.passed, first.failed_samples) == (False, {'wide'})
    process = InProcess()
    closer = [replace(sample, floors={'logits': 0.02}) if sample.name == 'wide' else sample for sample in given]
    second = judged(made, closer, tmp_path, process, first=first)
    assert process.samples == ['traced', 'wide']
    assert [(row.sample, row.floor) for row in second.rows] == [('traced', 0.02), ('same shape', 0.0), ('wide', 0.02), ('tall', 0.0)]
    assert second.passed
    # Of the two that were run no two have one shape: vacuity is judged over all.
    assert second.result is not None and second.result['vacuous'] == {} and second.result['little_change'] == {}


def test_second_verify_maps_repeated_rows_to_samples(tmp_path: Path) -> None:
    rows = [Comparison(name, 'logits', stage, 'pixels', 1e-4, problem=problem, again=again).as_dict() for name, stage, problem, again in (
        ('traced', EAGER, 'no', True), ('wide', 'artifact vs patched', 'no', False), ('tall', EAGER, None, False))]
    check = Verification('onnx', dict(stale=None, rows=rows, vacuous={}))
    assert check.failed_samples == {'traced', 'tall'}
    process = InProcess()
    made, given = artifact(tmp_path / 'a', Doubling()), samples()
    second = judged(made, given, tmp_path, process, first=check)
    assert process.samples == ['traced', 'tall']
    assert [row.sample for row in second.rows] == ['traced', 'wide', 'tall']


def test_second_verify_keeps_the_order_of_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the traced sample's last run stands with the others of that sample, and one of no sample at the end."""
    row = Comparison('wide', 'logits', EAGER, 'pixels', 1e-4, max_rel=0.0, beyond=0.0, median=0.0)
    first = Verification('torchscript', dict(stale=None, rows=[row.as_dict()], vacuous={}))
    made, process = artifact(tmp_path / 'a', Doubling()), InProcess()
    rows = [replace(row, sample=name, again=again).as_dict() for name, again in (('(raw)', False), ('traced', True), ('traced', False))]

    def run(asked: Sequence[str]) -> tuple[int, str]:
        Path(asked[asked.index('--out') + 1]).write_text(json.dumps(dict(stale=None, rows=rows, vacuous={})))
        return 0, ''

    monkeypatch.setattr(process, 'run', run)
    second = judged(made, samples(), tmp_path, process, first=first)
    assert [row.input_name for row in second.rows] == ['traced again', 'traced', 'wide', '(raw)']


def test_second_verify_of_replaced_file_is_stale(tmp_path: Path) -> None:
    made, given = artifact(tmp_path / 'a', Unsteady()), samples()
    first = judged(made, given, tmp_path, InProcess())
    made.file.write_bytes(b'other')
    second = judged(made, given, tmp_path, InProcess(), first=first)
    assert second.result is not None and second.result['rows'] == []
    assert 'is not the file of this manifest' in str(second.reason)


def test_verification_without_result() -> None:
    check = Verification('onnx', None)
    assert (check.passed, check.reason, check.rows, check.failed_samples, check.seconds, check.over_eager, check.died) == (
        None, None, [], set(), None, None, False)


def test_verification_time_relative_to_eager() -> None:
    assert Verification('onnx', dict(p50_s=1.0), eager_s=4.0).over_eager == 0.25
    assert Verification('onnx', dict(p50_s=1.0)).over_eager is None
    assert Verification('onnx', dict(), eager_s=4.0).over_eager is None


def test_patched_rows_use_floors_and_evidence() -> None:
    adapter: Any = SimpleNamespace(specs=[SimpleNamespace(as_dict=lambda: SPECS[0])])
    given = [replace(sample, patched={'logits': sample.expected['logits'] + off}, floors={'logits': floor})
             for sample, off, floor in zip(samples(), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 0.5, 0.0), strict=True)]
    rows = patched_rows(adapter, given, 1e-3)
    assert [(row.sample, row.output, row.stage, row.tolerance, row.floor, row.passed) for row in rows] == [
        (sample.name, 'logits', 'patched vs eager', 1e-3, 0.5, sample.name != 'same shape') for sample in given]
    # Evidence excuses here what it excuses there.
    labels = dict(name='labels', dtype='int32', kind='labels')
    adapter.specs = [SimpleNamespace(as_dict=lambda: labels)]
    one = Sample('s', torch.zeros(1, 3, 1, 4), {'labels': torch.tensor([[[0, 1, 1, 1]]])}, {'margin': torch.tensor([[[0.0, 1, 1, 1]]])},
                 {'labels': torch.tensor([[[1, 1, 1, 1]]])})
    assert patched_rows(adapter, [one], 1e-4)[0].passed


def test_keep_samples_drops_patched_and_raw(tmp_path: Path) -> None:
    made = artifact(tmp_path / 'a', Doubling())
    given = [replace(sample, patched=sample.expected, raw=sample.expected, raw_evidence=sample.expected,
                     evidence={'exempt': torch.zeros(1, 8, sample.image.shape[3])}, floors={'logits': 0.125}) for sample in samples()]
    assert keep_samples(made, given, 1e-3) == ['traced', 'same shape', 'wide', 'tall']
    kept, extra = read_samples(tmp_path / 'a' / 'samples.npz')
    assert extra == dict(tolerance=1e-3, floors={'logits': 0.125}, noise=1e-6)
    assert [(one.name, dict(one.patched), dict(one.raw), dict(one.raw_evidence), list(one.evidence)) for one in kept] == [
        (sample.name, {}, {}, {}, ['exempt']) for sample in given]


@pytest.mark.parametrize(('room', 'kept'), [
    (10 ** 6, ['traced', 'same shape', 'wide', 'tall']), (2 * 1536 + 1536, ['traced', 'same shape', 'tall']),
    (2 * 1536, ['traced', 'same shape']), (2 * 1536 - 1, ['tall']), (1536 + 2304 - 1, ['traced', 'same shape']), (1535, [])])
def test_keep_samples_keeps_pair_then_smallest(room: int, kept: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8x8 a sample has 1536 bytes, and of 8x12 2304."""
    made = artifact(tmp_path / 'a', Doubling())
    monkeypatch.setattr('mmexport.verification.verify.MAX_SAMPLE_BYTES', room)
    assert keep_samples(made, samples(), 1e-4) == kept
    place = tmp_path / 'a' / 'samples.npz'
    assert place.is_file() == bool(kept)
    if kept:
        read, extra = read_samples(place)
        assert [sample.name for sample in read] == kept
        assert ('judged' in extra) == (kept[0] != 'traced')
        if 'judged' in extra:
            assert extra['judged'] == dict(vacuous={}, little_change={}, classes=None)
            assert json.loads(json.dumps(extra)) == extra
