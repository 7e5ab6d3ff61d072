"""Time every format that is installed against unpatched eager, float32, all cores: made, verified, then timed in turn.

A file that does not pass is not timed. Files lie under --work-dir and are made once; the timing is repeated at will, and is worth
something on an idle machine only: the load of others is measured and shown.
    python benchmarks/formats.py --out benchmarks/results/speed_512.json
"""
from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import COMMIT, CONFIGS, ROOT, python, quiet, tool, write
from rounds import BUSY, Others, in_turn, paired

DOC, RESULTS = ROOT / 'docs' / 'formats.md', ROOT / 'benchmarks' / 'results'
# The best format's time over eager's at SIZE: what was reached on two cores, and is not given up unseen.
SIZE = (512, 512)
BOUNDS = {'mask2former_r50': 0.55, 'pspnet': 0.80, 'deeplabv3plus': 0.80, 'segformer_b0': 0.45, 'upernet_swin': 0.85}
# A `_static` file is exported for the one size.
STATIC = '_static'
FORMATS = ['torchscript', 'onnx', 'onnx_static', 'openvino', 'openvino_static', 'torch_export', 'aotinductor']
# Thread pools go on spinning for a moment after a call, on the cores that the next contestant needs.
PAUSE = 0.2


def main() -> int:
    args = parse()
    quiet()
    if args.time:
        print(json.dumps(measure(args.time[0], args.time[1:], args)))
        return 0
    rows = []
    for name in args.configs:
        rows.append(row(name, args))
        print(f"{name:<18}{', '.join(f'{form} {_ratio_or_reason(actual)}' for form, actual in rows[-1]['formats'].items())}", flush=True)
        write(args.out, rows, size=args.size, rounds=args.rounds, outputs='raw')
    if args.out.resolve().parent == RESULTS:
        document(args.out)
    return 0 if tuple(args.size) != SIZE or all(within(row) is not False for row in rows) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--configs', nargs='+', default=[*BOUNDS], help='names from configs/')
    parser.add_argument('--formats', nargs='+', default=FORMATS)
    parser.add_argument('--size', nargs=2, type=int, default=SIZE, metavar=('H', 'W'))
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--work-dir', type=Path, default=ROOT / 'work_dirs' / 'formats')
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--time', nargs='+', help=argparse.SUPPRESS)
    return parser.parse_args()


def row(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the config's formats: those that do not pass with the reason, the others with their times."""
    reason = make(name, args)
    passed = [form for form in args.formats if there_is(name, form, args)]
    timed = python(Path(__file__), '--time', name, *passed, '--size', *args.size, '--rounds', args.rounds, '--device', args.device,
                   '--work-dir', args.work_dir, '--out', args.out)
    if timed.returncode:
        raise SystemExit(f'{name} was not timed:\n{timed.stderr[-2000:]}')
    actual = json.loads(timed.stdout.splitlines()[-1])
    actual['formats'].update({form: dict(reason=reason) for form in args.formats if form not in passed})
    return dict(config=name, made_at={form: made_at(name, form, args) for form in passed}, **actual)


def folder_of(name: str, form: str, args: argparse.Namespace) -> Path:
    backend = form.removesuffix(STATIC)
    return Path(args.work_dir) / f"{name}{STATIC if form.endswith(STATIC) else ''}" / backend


def there_is(name: str, form: str, args: argparse.Namespace) -> bool:
    return (folder_of(name, form, args) / 'manifest.json').is_file()


def make(name: str, args: argparse.Namespace) -> str | None:
    """Make and verify what is not there; the last word of a run in which not all passed."""
    checkpoint, message = args.work_dir / f'{name}.pth', None
    for static in (False, True):
        missing = [form for form in args.formats if form.endswith(STATIC) is static and not there_is(name, form, args)]
        if not missing:
            continue
        if not checkpoint.is_file():
            seeded = tool('make_checkpoint', CONFIGS / f'{name}.py', checkpoint)
            if seeded.returncode:
                return f'no checkpoint: {last(seeded)}'
        place = folder_of(name, missing[0], args).parent
        done = tool('export', CONFIGS / f'{name}.py', checkpoint, '--backend', *(form.removesuffix(STATIC) for form in missing),
                    '--outputs', 'raw', '--shape', *args.size, '--device', args.device, '--work-dir', place, '--no-diagnose',
                    '--no-samples', *(['--cfg-options', 'export.inputs.dynamic=()'] if static else []))
        place.with_suffix('.txt').write_text(done.stdout + done.stderr)
        for form in missing:
            if there_is(name, form, args):
                # Files are used again, by a later commit perhaps: the row says which one made them.
                (folder_of(name, form, args).parent / f'{form}.commit').write_text(COMMIT)
        if done.returncode:
            message = last(done)
    return message


def last(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip() or done.stdout.strip() or '(no message)').splitlines()[-1][:300]


def made_at(name: str, form: str, args: argparse.Namespace) -> str:
    place = folder_of(name, form, args).parent / f'{form}.commit'
    return place.read_text() if place.is_file() else 'not recorded'


def measure(name: str, formats: list[str], args: argparse.Namespace) -> dict[str, Any]:
    import torch

    from mmexport.adapters import build_adapter
    from mmexport.checker.files import load
    from mmexport.inputs.synthetic import picture
    from mmexport.model.build import load_model
    from mmexport.model.config import load_config
    device = torch.device(args.device)
    cfg = load_config(CONFIGS / f'{name}.py')
    model, _ = load_model(cfg, str(args.work_dir / f'{name}.pth'), device)
    adapter = build_adapter(model, outputs='raw').to(device)
    image = picture((1, 3, *args.size), 0, adapter).to(device)
    contestants = {'eager': adapter}
    folders = {form: folder_of(name, form, args) for form in formats}
    manifests = {form: json.loads((folder / 'manifest.json').read_text()) for form, folder in folders.items()}
    with torch.no_grad():
        contestants.update({form: load(folders[form], manifests[form], device) for form in formats})
        first = {form: [clocked(run, image), clocked(run, image)] for form, run in contestants.items()}
        others = Others()
        seconds = in_turn({form: waited_for(run, device) for form, run in contestants.items()}, image, args.rounds, time.perf_counter,
                          lambda: time.sleep(PAUSE))
        load_of_others = others.load()
        on_device = {form: device_ms(run, image) for form, run in contestants.items()} if device.type == 'cuda' else {}
    actual = {form: dict(ratio=paired(seconds, form), call_1_s=first[form][0], call_2_s=first[form][1], **spread(seconds[form]),
                        mb=manifests[form]['bytes'] / 1e6 if form in manifests else None, device_ms=on_device.get(form))
             for form in contestants}
    return dict(threads=torch.get_num_threads(), others=load_of_others, eager=actual.pop('eager'), formats=actual)


def waited_for(run: Any, device: Any) -> Any:
    """Wait for the device after a call: on CUDA it returns before its work is done."""
    import torch
    if device.type != 'cuda':
        return run
    return lambda image: (run(image), torch.cuda.synchronize(device))


def clocked(run: Any, image: Any) -> float:
    started = time.perf_counter()
    waited_for(run, image.device)(image)
    return time.perf_counter() - started


def device_ms(run: Any, image: Any) -> float:
    """Measure the device's own time of a call, apart from what it takes to dispatch it."""
    import torch
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run(image)
    end.record()
    torch.cuda.synchronize(image.device)
    return float(start.elapsed_time(end))


def spread(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return dict(p50_s=statistics.median(ordered), p95_s=ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))])


def best(row: dict[str, Any]) -> float | None:
    return min((actual['ratio']['median'] for actual in row['formats'].values() if 'ratio' in actual), default=None)


def within(row: dict[str, Any]) -> bool | None:
    """Return whether the best format is within its bound; None where there is no bound, or nothing was timed on an idle machine."""
    fastest, bound = best(row), BOUNDS.get(row['config'])
    if fastest is None or bound is None or (row['others'] or 0.0) > BUSY:
        return None
    return bool(fastest <= bound)


def document(place: Path) -> None:
    content = json.loads(place.read_text())
    forms = list(dict.fromkeys(form for row in content['rows'] for form in row['formats']))
    lines = [f"| config | {' | '.join(forms)} | eager, ms | others, cores |", f"| --- |{' --- |' * (len(forms) + 2)}"]
    for row in content['rows']:
        cells = [_cell(row['formats'].get(form)) for form in forms]
        busy = row.get('others')
        lines.append(f"| {row['config']} | {' | '.join(cells)} | {row['eager']['p50_s'] * 1e3:.0f} | "
                     f"{'?' if busy is None else f'{busy:.2f}' + (', busy' if busy > BUSY else '')} |")
    lines += ['', f"`{content['command']}`: {content['rounds']} rounds, torch {content['versions']['torch']}, {content['cores']} cores "
                  f"({content['cpu']}), commit {content['commit']}"]
    text = re.sub(r'<!-- speed -->.*?<!-- /speed -->', lambda _: '<!-- speed -->\n' + '\n'.join(lines) + '\n<!-- /speed -->',
                  DOC.read_text(), flags=re.DOTALL)
    DOC.write_text(text)


def _cell(result: dict[str, Any] | None) -> str:
    if result is None or 'ratio' not in result:
        return 'not run' if result is None else result['reason'].replace('|', '/')
    ratio = result['ratio']
    return f"{ratio['median']:.2f} ({ratio['lower quartile']:.2f} to {ratio['upper quartile']:.2f})"


def _ratio_or_reason(result: dict[str, Any]) -> str:
    return f"{result['ratio']['median']:.2f}" if 'ratio' in result else result['reason'][:60]


if __name__ == '__main__':
    sys.exit(main())
