"""Test code as users write it: what a tracer decides once is turned by an input or refused by the file, and the report names the line."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from mmexport import Exporter
from mmexport.checker.admission import why_refused
from mmexport.errors import ConfigError
from mmexport.report.facts import Report
from tests.user_code import config


def export(work_dir: Path, head: str = 'plain', model: str = 'plain', **section: object) -> Report:
    cfg, checkpoint = config(head, model, **section)
    return Exporter(cfg, checkpoint, work_dir, diagnose=False).run()[0]


@pytest.mark.parametrize('habit', ['branch_on_aspect', 'branch_on_area', 'branch_on_wide', 'branch_on_int', 'branch_between',
                                   'branch_beyond', 'branch_behind_values', 'branch_on_all', 'even_batch', 'some_batches', 'odd_map',
                                   'one_pair_of_sides', 'every_eleventh', 'caught',
                                   'chunks_of_a_batch', 'chunks_of_rows', 'table_of_sizes', 'table_of_the_module',
                                   'by_stride', 'by_bytes', 'asked_in_an_argument', 'caught_by_the_caller'])
def test_a_branch_on_a_size_is_turned_and_named(habit: str, tmp_path: Path) -> None:
    report = export(tmp_path, habit)
    assert report.passed is False
    words = ' '.join(report.reasons)
    assert 'tests/user_code.py:' in words, words
    assert (tmp_path / 'failed' / 'torchscript').is_dir()
    assert not (tmp_path / 'torchscript').exists()


@pytest.mark.parametrize('habit', ['brightens', 'normalises', 'brightens by a list', 'brightens by numpy', 'darkens what is bright'])
def test_a_branch_on_values_is_turned_and_named(habit: str, tmp_path: Path) -> None:
    report = export(tmp_path, model=habit)
    assert report.passed is False
    # What numpy decides is no branch that is recorded; the tracer's warning names the line.
    assert 'user_models.py:' in ' '.join(report.lines() if 'numpy' in habit else report.reasons), report.reasons


def test_branch_turned_by_the_dark_picture_is_not_constant(tmp_path: Path) -> None:
    report = export(tmp_path, model='brightens')
    assert not [line for line in report.lines() if line.startswith('decided once: ')]


@pytest.mark.parametrize(('habit', 'backend', 'kind', 'cause'), [
    ('branch_on_aspect', 'onnx', 'refused', 'a branch on a size'), ('branch_on_aspect', 'torchscript', 'labels', 'a branch on a size'),
    ('brightens', 'torchscript', 'labels', 'a branch on a value')])
def test_the_diagnosis_names_the_branch(habit: str, backend: str, kind: str, cause: str, tmp_path: Path) -> None:
    """The line and what it is; an input that the file refuses is a kind of row of its own."""
    of_the_model = habit == 'brightens'
    cfg, checkpoint = config('plain' if of_the_model else habit, habit if of_the_model else 'plain', backends=[backend])
    report, = Exporter(cfg, checkpoint, tmp_path).run()
    failed = next(row for row in report.checks[0].rows if not row.passed)
    assert failed.kind == kind
    assert any(('REFUSED' if kind == 'refused' else 'FAIL') in line for line in report.lines())
    actual = report.diagnoses[0]
    assert (actual.cause, Path(str(actual.file)).name) == (cause, 'user_models.py' if of_the_model else 'user_code.py')
    assert ' if ' in f' {actual.source}', actual.source


def test_a_size_beyond_the_ranges_is_refused_by_the_file(tmp_path: Path) -> None:
    report = export(tmp_path, 'branch_on_long_side')
    assert report.passed, report.reasons
    spec = report.artifacts[0].manifest['inputs'][0]
    assert spec['ranges']['width'][1] < 500
    loaded = torch.jit.load(str(report.artifacts[0].file))
    with pytest.raises(Exception, match='was checked from 64 to'):
        loaded(torch.zeros(1, 3, 64, 512))


def test_a_condition_that_only_refuses_is_no_branch(tmp_path: Path) -> None:
    report = export(tmp_path, 'refuses_a_size')
    assert report.passed, report.reasons
    assert not report.branches.unresolved


@pytest.mark.parametrize(('habit', 'backend'), [
    ('branch_on_aspect', 'torch_export'), ('branch_on_aspect', 'openvino'), ('branch_on_long_side', 'onnx'),
    pytest.param('branch_on_aspect', 'aotinductor', marks=pytest.mark.slow)])
def test_a_branch_on_a_size_in_the_other_formats(habit: str, backend: str, tmp_path: Path) -> None:
    """Refused by the file, or exit 1 with the line; never another answer."""
    report = export(tmp_path, habit, backends=[backend])
    if habit == 'branch_on_aspect':
        assert report.passed is False
        assert 'tests/user_code.py:' in ' '.join(report.reasons), report.reasons
        return
    assert report.passed, report.reasons
    folder = report.artifacts[0].folder
    manifest = json.loads((folder / 'manifest.json').read_text())
    assert manifest['inputs'][0]['ranges']['width'][1] < 2000
    assert 'width' in str(why_refused(manifest['inputs'], [torch.zeros(1, 3, 64, 2048)]))


def test_the_ranges_leave_out_branches_that_were_not_verified(tmp_path: Path) -> None:
    """Fourteen sizes that the head asks for one by one are more than are tried: the file takes the others alone."""
    report = export(tmp_path, 'fourteen_sizes')
    assert report.passed, report.reasons
    assert any(line.startswith('ranges made smaller: ') and 'tests/user_code.py:' in line for line in report.lines()), list(report.lines())
    low, high = report.artifacts[0].manifest['inputs'][0]['ranges']['height']
    tried = {-(-shape[2] // 4) for shape in report.inputs.values()}
    assert not [side for side in range(17, 31) if low <= 4 * side <= high and side not in tried]
    assert all(low <= shape[2] <= high for shape in report.inputs.values())


def test_an_unverified_branch_fails_until_it_is_accepted(tmp_path: Path) -> None:
    """The sizes that the user named stay within the ranges."""
    sizes = dict(shapes=[(64, 64), (128, 96), (64, 96), (128, 64)])
    report = export(tmp_path / 'a', 'fourteen_sizes', verify=sizes)
    assert report.passed is False
    place = next(word for reason in report.reasons for word in reason.split() if 'user_code.py:' in word).rstrip(':')
    assert any(f'--accept-branch {place}' in reason for reason in report.reasons), report.reasons
    report = export(tmp_path / 'b', 'fourteen_sizes', verify=dict(sizes, accept_branches=[place]))
    assert report.passed, report.reasons
    assert place in report.artifacts[0].manifest['accepted_branches'][0]
    assert any(line.startswith(f'accepted: {place}') for line in report.lines())


def test_a_tracer_warning_on_the_users_line_is_in_the_report(tmp_path: Path) -> None:
    report = export(tmp_path, 'branch_on_int')
    lines = list(report.lines())
    warned = report.artifacts[0].manifest['torchscript']['tracer_warnings']
    assert any(warning['file'].endswith('tests/user_code.py') for warning in warned), warned
    assert any('tests/user_code.py:' in line for line in lines)


def test_a_branch_on_how_many_were_found_is_one_on_values(tmp_path: Path) -> None:
    report = export(tmp_path, 'nothing_found')
    assert [site.text for site in report.branches.once] == ['(y.abs().mean(dim=1) > 1e9).nonzero().shape[0] > 0']


@pytest.mark.parametrize('habit', ['by_numpy', 'by_numel'])
def test_a_size_that_leaves_python_is_named(habit: str, tmp_path: Path) -> None:
    """numpy and ``torch.Size.numel`` answer plain numbers; the tracer is asked there, or the call is seen."""
    lines = list(export(tmp_path, habit).lines())
    assert any(line.strip().startswith(('tracer warning', 'not followed')) and 'user_code.py' in line for line in lines), lines


@pytest.mark.parametrize('habit', ['cache_of_sizes', 'by_square_root', 'list_of_gains', 'by_divisor', 'by_name', 'by_ratio',
                                   'list_of_modules', 'counted_by_a_loop', 'by_storage'])
def test_a_size_that_is_not_followed_is_named(habit: str, tmp_path: Path) -> None:
    """On the terminal and in the manifest; and nothing else is said of that line that sounds like an answer."""
    report = export(tmp_path, habit)
    places = {line.split(': ')[1] for line in report.lines() if line.startswith('not followed') and 'user_code.py' in line}
    assert places
    assert not [line for line in report.lines() if line.startswith('one answer') and line.split(': ')[1] in places]
    assert all(any(place in message for message in report.artifacts[0].manifest['not_followed']) for place in places)


def test_a_branch_on_the_number_of_metas_is_turned(tmp_path: Path) -> None:
    report = export(tmp_path, model='pairs')
    assert report.passed is False
    assert 'len(batch_img_metas) == 2' in ' '.join(report.reasons)


@pytest.mark.parametrize('habit', ['overlays', 'drops small pictures', 'joins pairs', 'enlarges', 'shares a helper',
                                   'counts what was found'])
def test_a_branch_on_a_size_outside_the_network_is_turned(habit: str, tmp_path: Path) -> None:
    """Only ``test_step`` runs post-processing and ``whole_inference``; the file has neither."""
    report = export(tmp_path, model=habit)
    assert report.passed is False
    assert any(reason.startswith('test_step on ') and 'user_models.py:' in reason for reason in report.reasons), report.reasons


@pytest.mark.parametrize('habit', ['looks in a list', 'names sizes'])
def test_size_that_leaves_the_graph_after_the_network_is_named(habit: str, tmp_path: Path) -> None:
    report = export(tmp_path, model=habit)
    assert any('user_models.py' in place for place in report.artifacts[0].manifest['not_followed']), report.branches


def test_an_input_that_test_step_refuses_is_a_row(tmp_path: Path) -> None:
    report = export(tmp_path, model='refuses tall pictures')
    assert report.passed, report.reasons
    words = ' '.join(' '.join(report.lines()).split())
    assert 'not run on tall: the eager, unpatched model fails on its inputs (tall (1, 3, 208, 64)) with ValueError: too tall' in words


def test_a_branch_in_post_processing_is_named(tmp_path: Path) -> None:
    report = export(tmp_path, model='drops specks')
    assert any('(labels == 1)' in site.text for site in report.branches.once), report.branches


def test_a_value_that_numpy_reads_is_named(tmp_path: Path) -> None:
    report = export(tmp_path, 'read_by_numpy')
    assert any('numpy()' in site.text for site in report.branches.once)


def test_a_place_that_is_no_branch_is_not_accepted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='user_code.py:1 '):
        export(tmp_path, verify=dict(accept_branches=['user_code.py:1']))


def test_test_step_has_the_last_word_on_decisions(tmp_path: Path) -> None:
    report = export(tmp_path, model='swaps labels')
    assert report.passed is False
    assert any(reason.startswith('test_step on') for reason in report.reasons), report.reasons


def test_plain_code_of_a_user_passes(tmp_path: Path) -> None:
    report = export(tmp_path)
    assert report.passed, report.reasons
    assert not report.branches.once and not report.branches.unresolved
