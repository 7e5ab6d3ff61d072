"""Check the exit codes, the table and the verdict of the program."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport.artifact import Artifact
from mmexport.checker.check import check, verdict
from mmexport.checker.comparison import EAGER, Comparison
from mmexport.checker.files import reason_of
from mmexport.checker.judging import judge_samples
from mmexport.checker.main import main, table
from mmexport.checker.one_sample import check_sample
from mmexport.checker.samples import Sample
from mmexport.errors import ConfigError, VerificationError
from mmexport.export.publish import _refuse_what_was_changed
from mmexport.inputs.shapes import plan_shapes
from mmexport.inputs.size_rules import SizeRules
from tests.checker.folders import (
    LABELS,
    RAW,
    Remembering,
    Shifted,
    Sound,
    Wrong,
    deciding,
    folder_of,
)
from tests.checker.made import INSTANCE, instances


def test_a_missing_runtime_is_no_failed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def load(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'onnxruntime'", name='onnxruntime')

    monkeypatch.setattr('mmexport.checker.check.load', load)
    assert main([str(folder_of(Sound(), tmp_path))]) == 3
    assert 'cannot be checked: onnxruntime is not installed here' in capsys.readouterr().err


@pytest.mark.parametrize(('module', 'choices', 'told'), [(Remembering(), ['places'], True), (Remembering(), [], False),
                                                         (Sound(), ['places'], False), (Remembering(), ['logits'], False)])
def test_choice_that_a_file_does_not_give_is_told_where_it_fails(module: torch.nn.Module, choices: list[str], told: bool, tmp_path: Path,
                                                                 capsys: pytest.CaptureFixture[str]) -> None:
    main([str(folder_of(module, tmp_path, choices=choices))])
    words = ' '.join(capsys.readouterr().out.split())
    assert ('computes from places, which rounding may decide' in words) == told


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
    (tmp_path / 'model.pt').touch()
    for folder, words in ((tmp_path / 'none', 'no such folder'), (tmp_path, 'no manifest.json'),
                          (tmp_path / 'model.pt', 'name its folder')):
        with pytest.raises(ValueError, match=words):
            check(folder, folder / 'samples.npz', torch.device('cpu'))


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
    actual = dict(stale=None, vacuous={}, device='cpu', rows=[row.as_dict() for row in rows])
    lines = [
        'sample          output         max rel    cosine  result',
        'traced          logits         2.3e-06  0.999999  pass',
        'tall            labels               -         -  FAIL',
        'FAIL: tall, labels: 50.00% differs where eager is clear, limit 0.00%']
    assert [line for line, _ in table(actual, verbose=True)] == lines
    assert [line for line, _ in table(actual)] == [lines[0], *lines[2:]]
    passing = {**actual, 'rows': actual['rows'][:1]}  # type: ignore[index]
    last = 'PASS on cpu: 1 inputs, output logits; largest error 2.3e-06 of the scale'
    assert table(passing) == [(last, True)]
    older = [line for line, _ in table({**passing, 'older': 'word ' * 20}, verbose=True)]
    assert older == [*lines[:2], ('word ' * 16).strip(), ('word ' * 4).strip(), last]


def test_main_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ('sound', 'wrong', 'empty'):
        (tmp_path / name).mkdir()
    sound, wrong = folder_of(Sound(), tmp_path / 'sound'), folder_of(Wrong(), tmp_path / 'wrong')
    assert main([str(sound)]) == 0
    assert 'PASS on cpu: 2 inputs, ' in capsys.readouterr().out
    assert main([str(wrong)]) == 1
    assert 'FAIL: s' in capsys.readouterr().out
    assert main([str(sound), '--kind', 'labels=absent.py']) == 2
    assert "there is no file 'absent.py'" in capsys.readouterr().err
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
    assert little == {'logits': 'only 0% of the channels change by 100 tolerances between two inputs (at least 95% required)'}
    assert judge_samples(manifest, [sample('a', 4, 1.0), sample('c', 4, 2.0)], extra)['little_change'] == {}


def test_reason_is_the_last_line_up_to_300_characters() -> None:
    assert reason_of(ValueError('first\n\n  last  \n')) == 'last'
    assert reason_of(ValueError('x' * 400)) == 'x' * 300
    assert reason_of(ValueError(' \n')) == reason_of(ValueError()) == '(no message)'


def test_table_wraps_at_80_columns() -> None:
    actual = dict(stale=None, vacuous={}, device='cpu', rows=[], older=f"{'x' * 75} 12345")
    assert [line for line, _ in table(actual)[:2]] == ['x' * 75, '12345']


def test_judge_samples_uses_precision_and_floors() -> None:
    one, other = torch.zeros(1, 40, 40, dtype=torch.int32), torch.zeros(1, 40, 40, dtype=torch.int32)
    one[0, 0, :5] = other[0, 1, :5] = 1
    samples = [Sample(name, torch.full((1, 3, 4, 4), float(number)), {'labels': labels}) for number, (name, labels) in enumerate(
        (('a', one), ('b', other)))]
    specs = [dict(name='labels', dtype='int32', kind='labels')]

    def vacuous(floor: float = 0.0, **more: str) -> Any:
        return judge_samples(dict(outputs=specs, num_classes=4, **more), samples, dict(tolerance=1e-4, floors={'labels': floor}))['vacuous']

    assert vacuous() == {}
    assert 'would pass' in vacuous(precision='float16')['labels']
    assert 'would pass' in vacuous(floor=0.02)['labels']


def test_check_sample_uses_the_precision() -> None:
    image = torch.rand(1, 3, 8, 8) + 1
    sample = Sample('s', image, {'logits': image})
    manifest = dict(outputs=[dict(name='logits', dtype='float32', kind='pixels')])
    extra = dict(tolerance=1e-4, floors={})
    for precision, passed in (({}, False), ({'precision': 'float16'}, True)):
        row, = check_sample(lambda image: (image + 1e-3,), sample, {**manifest, **precision}, extra, torch.device('cpu'))
        assert row.passed == passed


def test_outputs_that_are_no_tensors_are_reported() -> None:
    image = torch.rand(1, 3, 8, 8)
    actual = check_sample(lambda image: (image, 5), Sample('s', image, {'logits': image}), dict(
        outputs=[dict(name='logits', dtype='float32', kind='pixels')]), dict(tolerance=1e-4, floors={}), torch.device('cpu'))
    assert [row.passed for row in actual] == [False]
    assert 'AttributeError' not in str(actual[0].reason)


def test_check_requires_the_trust_flag(tmp_path: Path) -> None:
    folder, _ = deciding(tmp_path, Shifted())
    manifest = json.loads((folder / 'manifest.json').read_text())
    (folder / 'manifest.json').write_text(json.dumps({**manifest, 'backend': 'aotinductor'}))
    with pytest.raises(ValueError, match='--trust'):
        check(folder, folder / 'samples.npz', torch.device('cpu'))
    with pytest.raises(ValueError, match=r'^there is no such folder$'):
        check(tmp_path / 'nothing', folder / 'samples.npz', torch.device('cpu'))


def test_samples_from_elsewhere_are_none_of_the_folder(tmp_path: Path) -> None:
    folder, _ = deciding(tmp_path, Shifted())
    manifest = json.loads((folder / 'manifest.json').read_text())
    (folder / 'manifest.json').write_text(json.dumps({**manifest, 'samples_sha256': 'of what was kept'}))
    assert 'is not the file of this manifest' in check(folder, folder / 'samples.npz', torch.device('cpu'))['stale']
    elsewhere = (folder / 'samples.npz').rename(tmp_path / 'mine.npz')
    assert check(folder, elsewhere, torch.device('cpu'))['stale'] is None


def test_wrong_options_are_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(Sound(), tmp_path)
    for options, words in ((['--device', 'cpux'], 'expected cpu, cuda or cuda:N'), (['--runner', 'none.py'], 'no such file'),
                           (['--out', str(folder / 'none' / 'a.json')], 'cannot be written')):
        assert main([str(folder), *options]) == 2
        assert words in capsys.readouterr().err
