"""Render the facts of one run as text of about 80 columns."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from ..artifact import FAILED, Artifact
from ..checker.comparison import EAGER, REFUSED, Comparison
from ..checker.reduced import FULL, rule
from ..utils.line import Line
from ..utils.progress import counted
from ..verification.test_step import summary_lines
from ..verification.verify import Verification

if TYPE_CHECKING:
    from .facts import Report

STYLES = {True: 'bold green', False: 'bold red', None: 'yellow'}


def render(report: Report, verbose: bool = False) -> Iterator[str]:
    """Yield the lines; a format that passes has one, or with `verbose` all its rows."""
    ops = {'stand-in': 'without compiled ops (stand-in)', 'compiled': 'with compiled ops'}[report.versions['mmcv_ops']]
    yield f"{Path(report.config).name}: {report.task}, outputs '{report.outputs}', on {report.device}"
    yield f"torch {report.versions['torch']}, mmcv {ops}"
    kernels = report.versions.get('reference_kernels', {})
    yield from (f"  eager ran on mmexport's kernel {name}, which was compared with {what}" for name, what in kernels.items())
    if kernels:
        yield '  no speed relative to eager is given: these kernels are plain and slow'
    if report.fit and (report.fit.missing or report.fit.unexpected or report.fit.misshaped):
        yield (f'checkpoint: {len(report.fit.missing)} keys missing, {len(report.fit.unexpected)} unexpected, '
               f'{len(report.fit.misshaped)} of another shape')
        for key in (report.fit.missing + report.fit.misshaped)[:5]:
            yield f'  not loaded: {key[:64]}'
    yield f'devices, as if on {report.audit.device}: {report.audit.verdict}'
    yield from (f'  fixed: {line}' for line in report.audit.fixed)
    acted = [row.name for row in report.applied if row.acted]
    yield from wrap(f"patches that acted: {', '.join(acted) or 'none'} (of {len(report.applied)} registered)", 80)
    yield from (note for row in report.applied if row.acted and (note := row.untried(report.versions)))
    for artifact, check in zip(report.artifacts, report.checks, strict=True):
        yield from _artifact_lines(report, artifact, check, verbose or check.passed is False)
    yield from _class_lines(report)
    yield from summary_lines(report.pipelines)
    yield from _input_lines(report)
    # Places are copied into commands, and stay whole.
    yield from (part for line in report.branches.lines() for part in wrap(line, 80, break_long_words=False, break_on_hyphens=False))
    yield from (line for note in report.notes for line in wrap(note, 80))
    yield ''
    yield from _formats(report)
    yield from wrap('time: ' + ', '.join(f'{what} {took:.0f} s' for what, took in report.time_by_kind.items()), 80)
    verdict = {True: 'PASS', False: 'FAIL', None: 'not verified'}[report.passed]
    yield Line(f"{verdict}: {report.work_dir / FAILED if report.passed is False else report.work_dir}", STYLES[report.passed])
    yield from (f'  {reason}' for reason in report.reasons)
    yield from (line for row in report.diagnoses for line in row.lines())


def _input_lines(report: Report) -> Iterator[str]:
    """Yield the inputs that were tried, what they span, and what was left out."""
    if not report.inputs:
        return
    sizes = ', '.join(f"{name} {'x'.join(map(str, (*shape[:1], *shape[2:])))}" for name, shape in report.inputs.items())
    yield from wrap(f'inputs tried: {sizes}', 80)
    if report.plan and report.plan.rules.fixed:
        yield 'sizes: the model takes one size only'
    elif report.plan and report.plan.rules.multiple_of > 1:
        yield f'sizes: the model takes multiples of {report.plan.rules.multiple_of}'
    for name, reason in (report.plan.dropped if report.plan else {}).items():
        yield f'left out: {name}: {reason}'


def _formats(report: Report) -> Iterator[str]:
    """Yield one line a format: size, parity, the time of a call, and that over eager's."""
    yield f"{'format':<14}{'file':<12}{'MB':>7}{'parity':>9}{'p50 ms':>9}{'/eager':>8}  checked on"
    for artifact, check in zip(report.artifacts, report.checks, strict=True):
        share = report.over_eager(check)
        ratio = f'{share:>8.2f}' if share else f"{'-':>8}"
        time = f'{1e3 * check.seconds:>9.0f}{ratio}' if check.seconds else f"{'-':>9}{'-':>8}"
        parity = {True: 'pass', False: 'FAIL', None: 'not run'}[check.passed]
        size = artifact.manifest['bytes'] / 1e6
        yield Line(f'{artifact.backend:<14}{artifact.file.name:<12}{size:>7.1f}{parity:>9}{time}  {report.device if check.result else "-"}',
                   STYLES[check.passed].removeprefix('bold '))
    for name in report.failures:
        yield Line(f"{name:<14}{'-':<12}{'-':>7}{'not made':>9}", 'red')


def _artifact_lines(report: Report, artifact: Artifact, check: Verification, whole: bool) -> Iterator[str]:
    """Yield what there is to say of a format that passes; `whole` adds how it was made, and every row."""
    lines = [*_remarks(report, artifact, check), *(_details(report, artifact, check) if whole else ())]
    if lines:
        yield ''
        yield f"{artifact.backend}: {artifact.file} ({artifact.manifest['bytes'] / 1e6:.1f} MB)"
        yield from (f'  {line}' for line in lines)


def _remarks(report: Report, artifact: Artifact, check: Verification) -> Iterator[str]:
    """Yield warnings about the user's code, the rule of a precision below float32, and outputs that say little."""
    facts = artifact.manifest.get(artifact.backend, {})
    judged = {(site.file, site.line) for site in (*report.branches.turned, *report.branches.never, *report.branches.once)}
    # Formats that are made of one program have the same warnings.
    shown = [warning for other in report.artifacts[:report.artifacts.index(artifact)]
            for warning in other.manifest.get(other.backend, {}).get('tracer_warnings', ())]
    for warning in facts.get('tracer_warnings', ()):
        if (warning['file'], warning['line']) not in judged and warning not in shown:
            yield f"tracer warning: {warning['file']}:{warning['line']}: {warning['message']}"
    precision = artifact.manifest.get('precision', FULL)
    if precision != FULL:
        yield rule(precision)
    if check.moved:
        yield from wrap(f'at most {max(check.moved.values())} of its choices (of queries, or of cells that they attend to) are not those '
                        f'of eager, and follow from rounding: eager took those of the file on {counted(len(check.moved), "input")}', 78)
    for row in check.rows:
        if row.stage == EAGER and row.passed and row.rounding and row.max_rel is not None and row.max_rel > row.tolerance:
            yield from wrap(f'{row.output} on {row.input_name} is {row.max_rel:.1e} off, and passes: eager itself is {row.rounding:.1e} '
                            'off where it rounds otherwise (in float64, or on other kernels of torch)', 78)
    if check.result is None:
        return
    for name in check.result['vacuous']:
        yield f'vacuous: {name} (see the reason at the end)'
    for name, reason in check.result.get('little_change', {}).items():
        yield f'{name} vary little: {reason}'


def _details(report: Report, artifact: Artifact, check: Verification) -> Iterator[str]:
    yield from artifact.manifest.get(artifact.backend, {}).get('summary', ())
    if check.result is None:
        yield 'not run (--no-verify)'
        return
    stages = {(row.sample, row.output): row for row in report.stages}
    wide = max([15, *(len(row.input_name) + 1 for row in check.rows)])
    yield f"{'sample':<{wide}}{'output':<13}{'patched':>9}{'artifact':>9}{'floor':>7}  result"
    for row in check.rows:
        if row.stage == EAGER:
            patched = stages.get((row.sample, row.output))
            result = 'pass' if row.passed else 'REFUSED' if row.kind == REFUSED else 'FAIL'
            yield f'{row.input_name:<{wide}}{row.output:<13}{_figure(patched):>9}{_figure(row):>9}{row.floor:>7.1%}  {result}'


def _class_lines(report: Report) -> Iterator[str]:
    """Yield how many classes the expected decisions show, and which they do not; they are the same for every format."""
    for artifact, check in zip(report.artifacts, report.checks, strict=True):
        classes = check.result.get('classes') if check.result else None
        if not classes:
            continue
        names = artifact.manifest.get('classes') or []
        never = [names[label] if label < len(names) else str(label) for label in classes['never']]
        line = f"{len(classes['seen'])} of {len(classes['seen']) + len(never)} classes are decided somewhere"
        if never:
            shown = ', '.join(never[:6]) + (f' and {len(never) - 6} more' if len(never) > 6 else '')
            line += f'; never: {shown}: of those only the raw outputs were compared'
        yield from wrap(line, 80)
        return


def _figure(row: Comparison | None) -> str:
    """Return the error over the scale. For label maps it is the share of pixels that differ, for choices of those that are wrong."""
    if row is None or row.problem:
        return '-'
    if row.max_rel is not None:
        return f'{row.max_rel:.1e}'
    return f"{1 - row.metrics.get('pixel_agreement', 1 - (row.beyond or 0.0)):.2%}"
