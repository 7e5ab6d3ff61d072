"""Make the parts of docs/results.md about detectors: their speed, files judged by mmcv's compiled ops, and models of full size."""
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from common import ROOT

RESULTS = ROOT / 'benchmarks' / 'results'


def parts(machine: Callable[[dict[str, Any]], str]) -> dict[str, Callable[[], str]]:
    """Return the parts by the name of their mark; `machine` says where a file was recorded."""
    return {'detector speed': lambda: speed(machine), 'op speed': lambda: ops_alone(machine), 'nms cases': lambda: suppression(machine),
            'detectors compiled': lambda: compiled(machine), 'whole detectors': lambda: whole(machine),
            'whole detectors formats': lambda: whole_by_format(machine), 'trained families': lambda: trained(machine),
            'detectors aotinductor': lambda: in_aotinductor(machine)}


def speed(machine: Callable[[dict[str, Any]], str]) -> str:
    """Return the times of files over eager's, and the share of ops that mmcv has kernels for."""
    contents = {name: json.loads((RESULTS / name).read_text()) for name in ('detector_speed.json', 'detector_speed_dcn.json')}
    rows = [row for content in contents.values() for row in content['rows']]
    formats = list(dict.fromkeys(name for row in rows for name in row.get('formats', {})))
    ops = list(dict.fromkeys(op for row in rows for op in _ops(row)))
    lines = ['| ' + ' | '.join(['detector', 'eager, s', *formats, *(f'{op}, share of TorchScript' for op in ops)]) + ' |',
             '| --- ' * (len(formats) + len(ops) + 2) + '|']
    for row in rows:
        if 'formats' not in row:
            lines.append(f"| {row['config']} |" + ' - |' * (len(formats) + len(ops) + 1) + f" {row['reason']}")
            continue
        cells = [_ratio(row['formats'][name]['ratio']) if name in row['formats'] else '-' for name in formats]
        cells += [f"{_ops(row)[op]['share_of_torchscript']['median']:.1%}" if op in _ops(row) else '-' for op in ops]
        lines.append(f"| {row['config']} | {row['eager']['p50_s']:.2f} | {' | '.join(cells)} |")
    sources = [f"`{name}`: {'x'.join(map(str, content['size']))}, {content['rounds']} interleaved rounds, wall time, all threads, "
               f'{_with_ops(content, machine)}' for name, content in contents.items()]
    return '\n'.join([*lines, '', '; '.join(sources)])


def _ops(row: dict[str, Any]) -> dict[str, Any]:
    """Return the ops of a detector; rows of before others were timed have suppression alone."""
    return row.get('ops') or {name: row[name] for name in ('suppression',) if name in row}


def ops_alone(machine: Callable[[dict[str, Any]], str]) -> str:
    """Return the times of our forms of mmcv's ops over mmcv's, and the errors."""
    place = RESULTS / 'op_speed.json'
    content = json.loads(place.read_text())
    lines = ["| op | case | time over mmcv's | mmcv, ms | error, of the largest value |", '| --- | --- | --- | --- | --- |']
    lines += [f"| {row['op']} | {row['case']} | {_ratio(row['ratio'])} | {row['mmcv']['p50_s'] * 1000:.1f} | {row['error']:.0e} |"
              for row in content['rows']]
    return '\n'.join([*lines, '', f"`{place.name}`: {content['rounds']} interleaved rounds, wall time, {content['threads']} threads, "
                      f'{_with_ops(content, machine)}'])


def suppression(machine: Callable[[dict[str, Any]], str]) -> str:
    """Return how many pictures each runtime suppresses otherwise than a loop does."""
    place = RESULTS / 'nms_cases.json'
    content = json.loads(place.read_text())
    lines = ['| boxes in a picture | runs | pictures | differ | of those with equal scores | without these and any overlap at the '
             'threshold |', '| --- | --- | --- | --- | --- | --- |']
    cases = {case['boxes']: case for case in content['cases']}
    lines += [f"| {row['boxes']} | {row['runs']} | {cases[row['boxes']]['pictures']} | {row['differ']} | "
              f"{row['differ_of_tied']} of {cases[row['boxes']]['tied']} | {row['differ_clearly']} |" for row in content['rows']]
    suppressed = sum(case['suppressed'] for case in content['cases'])
    return '\n'.join([*lines, '', f'`{place.name}`: {suppressed} boxes suppressed; {_with_ops(content, machine)}'])


def compiled(machine: Callable[[dict[str, Any]], str]) -> str:
    """Return which files pass where eager runs on mmcv's kernels."""
    place = RESULTS / 'detectors_compiled.json'
    content = json.loads(place.read_text())
    passed, others = [], []
    for row in content['rows']:
        result = row.get('formats', {}).get('torchscript', row.get('reason'))
        passed.append(row['name']) if result == 'PASS' else others.append((row['name'], result))
    lines = [f"TorchScript, small, seeded weights: {len(passed)} of {len(content['rows'])} detectors pass.", '']
    lines += [f'* {name}: {result}' for name, result in others]
    ours = sorted({name for row in content['rows'] for name in row.get('reference_kernels', ())})
    lines += ['', f"Kernels of mmexport's own that were called all the same, as mmcv has none for a CPU: {', '.join(ours) or 'none'}."]
    return '\n'.join([*lines, '', _source(place.name, content, lambda content: _with_ops(content, machine))])


def whole(machine: Callable[[dict[str, Any]], str]) -> str:
    """Return what the check of each detector of full size said, and what its file answers in a process without OpenMMLab."""
    lines = ['| config | eager on | result | inputs | box error, px | outputs at 1x3x800x1344, without OpenMMLab | s |',
             '| --- | --- | --- | --- | --- | --- | --- |']
    sources = []
    for name in ('whole_detectors.json', 'whole_detectors_compiled.json'):
        if not (RESULTS / name).is_file():
            continue
        content = json.loads((RESULTS / name).read_text())
        for row in content['rows']:
            ops = f"mmcv {content['versions']['mmcv']}" if row['mmcv_ops'] == 'compiled' else 'mmcv-lite'
            # Rows of before box_error was recorded have that of the last input.
            last = '' if row.get('box_error') is not None else ' (last)'
            errors = [row['box_error']] if row.get('box_error') is not None else [
                metrics['box_error'] for metrics in row.get('rows', {}).values() if 'box_error' in metrics]
            alone = row.get('alone', {})
            shapes = ', '.join('x'.join(map(str, shape)) or 'one number' for shape in alone.values()) if isinstance(alone, dict) else alone
            lines.append(f"| {row['config']} | {ops} | {'PASS' if row['passed'] else row['reason']} | {len(row['samples'])} | "
                         f"{f'{max(errors):.1e}{last}' if errors else '-'} | {shapes} | {row['seconds']} |")
        sources.append(_source(name, content, machine))
    return '\n'.join([*lines, '', '; '.join(sources)])


def whole_by_format(machine: Callable[[dict[str, Any]], str]) -> str:
    """Return what the check of each detector of full size said of other formats than TorchScript."""
    place = RESULTS / 'whole_detectors_formats.json'
    if not place.is_file():
        return 'not run'
    content = json.loads(place.read_text())
    formats = content['backend']
    lines = ['| config | ' + ' | '.join(formats) + ' | inputs | s |', '| --- ' * (len(formats) + 3) + '|']
    for row in content['rows']:
        cells = [str(row.get('formats', {}).get(name, row.get('reason', 'not run'))).partition(':')[0] for name in formats]
        lines.append(f"| {row['config']} | {' | '.join(cells)} | {len(row.get('samples', []))} | {row.get('seconds', '-')} |")
    given = [f"* {row['config']}, {name}: run with `{' '.join(options)}`" for row in content['rows']
             for name, options in row.get('options', {}).items()]
    return '\n'.join([*lines, '', *given, *([''] if given else []), *_reasons(content), _source(place.name, content, machine)])


def trained(machine: Callable[[dict[str, Any]], str]) -> str:
    """Return what the check said of detectors that were trained for some minutes."""
    place = RESULTS / 'trained_families.json'
    if not place.is_file():
        return 'not run'
    content = json.loads(place.read_text())
    formats = list(dict.fromkeys(name for row in content['rows'] for name in row.get('formats', {})))
    untrained: list[str] = []
    columns = ('config of mmdet', 'steps', 'mAP of boxes', 'mAP of masks', *formats, 'detections in a picture or batch',
               'most that eager is unsure of')
    lines = [f"| {' | '.join(columns)} |", '| --- ' * len(columns) + '|']
    for row in content['rows']:
        if 'formats' not in row:
            untrained.append(f"* {row['name']}: {row['reason']}")
            continue
        cells = [row['formats'].get(name, 'not run').partition(':')[0] for name in formats]
        unsure = '-' if row['most_unsure'] is None else f"{row['most_unsure']:.1%}"
        scores = [row['mean_average_precision'].get(kind) for kind in ('bbox', 'segm')]
        cells = ['-' if score is None else f'{score:.1f}' for score in scores] + cells
        lines.append(f"| {row['config']} | {row['steps']} | {' | '.join(cells)} | "
                     f"{' to '.join(map(str, row['detections']))} | {unsure} |")
    lines += ['', 'Could not be trained or compared:', '', *untrained] if untrained else []
    return '\n'.join([*lines, '', *_reasons(content), _source(place.name, content, machine)])


def in_aotinductor(machine: Callable[[dict[str, Any]], str]) -> str:
    """Return which small detectors pass as packages of AOTInductor."""
    place = RESULTS / 'detectors_aotinductor.json'
    if not place.is_file():
        return 'not run'
    content = json.loads(place.read_text())
    results = {row['name']: row.get('formats', {}).get('aotinductor', row.get('reason')) for row in content['rows']}
    passed = [name for name, result in results.items() if result == 'PASS']
    lines = [f"{len(passed)} of {len(results)} pass: {', '.join(passed)}.", '']
    lines += [f'* {name}: {result}' for name, result in results.items() if result != 'PASS']
    return '\n'.join([*lines, _source(place.name, content, machine)])


def _reasons(content: dict[str, Any]) -> list[str]:
    """Return a line for each format of a config that does not pass, and an empty one after them."""
    lines = [f"* {row['config']}, {name}: {reason}" for row in content['rows'] for name, reason in row.get('formats', {}).items()
             if reason != 'PASS']
    return [*lines, *([''] if lines else [])]


def _source(name: str, content: dict[str, Any], machine: Callable[[dict[str, Any]], str]) -> str:
    """Return where a file of results was recorded, and at which commits."""
    commits = {commit for row in content['rows'] for commit in (row['commit'], *row.get('earlier', {}).values())}
    return f"`{name}`: {machine(content)}; rows of {', '.join(sorted(commits))}"


def _with_ops(content: dict[str, Any], machine: Callable[[dict[str, Any]], str]) -> str:
    return f"{machine(content)}, mmcv {content['versions']['mmcv']} with compiled ops"


def _ratio(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['lower quartile']:.2f} to {ratio['upper quartile']:.2f})"
