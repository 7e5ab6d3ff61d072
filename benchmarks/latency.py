"""Time eager, a plain unfrozen trace and our artifact in one process, in turn: medians of at least 15 rounds.

Weights are those that the model is built with: time does not depend on them. CPU time of one thread is the steady figure on a shared
machine; wall time with all threads is shown beside it.
    python benchmarks/latency.py --configs mask2former_r50 --size 512 512 --out benchmarks/results/latency.json
"""
from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import CONFIGS, names, quiet, write
from rounds import in_turn, paired


def main() -> None:
    args = parse()
    quiet()
    rows: list[dict[str, Any]] = []
    for name in args.configs or names():
        row = measure(name, tuple(args.size), args.rounds)
        rows.append(row)
        write(args.out, rows, size=args.size, rounds=args.rounds, outputs='raw')
        print(f"{name:<24} CPU time {show(row['cpu_ratio'])}; wall {show(row['wall_ratio'])}; "
              f"over plain {row['cpu_artifact_over_plain']}", flush=True)


def show(ratio: dict[str, float]) -> str:
    return ', '.join(f'{name}/eager {value:.3f}' for name, value in ratio.items() if name != 'eager')


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--configs', nargs='*', help='names from configs/ (all)')
    parser.add_argument('--size', nargs=2, type=int, default=(512, 512), metavar=('H', 'W'))
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--out', type=Path, required=True)
    return parser.parse_args()


def measure(name: str, size: tuple[int, int], rounds: int) -> dict[str, Any]:
    import torch

    from mmexport.adapters import build_adapter
    from mmexport.backends import build_backend
    from mmexport.device.unregistered_tensors import stop_gradients
    from mmexport.inputs.synthetic import picture
    from mmexport.model.build import build_model
    from mmexport.model.config import load_config
    from mmexport.patching import patched
    model = build_model(load_config(CONFIGS / f'{name}.py'))
    stop_gradients(model)
    adapter = build_adapter(model, outputs='raw')
    image = picture((1, 3, *size), 0, adapter)
    backend = build_backend('torchscript')
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        plain = saved_and_loaded(torch.jit.trace(adapter, (image,), check_trace=False), Path(folder) / 'plain.pt')
        started = time.perf_counter()
        with patched('auto'):
            artifact = backend.lower(adapter, image, Path(folder) / 'torchscript', {})
        lowering = time.perf_counter() - started
        ours = backend.load(artifact, 'cpu')
        contestants: dict[str, Callable[..., Any]] = {'eager': adapter, 'artifact': ours}
        broken = failure(plain, image)
        if broken is None:
            contestants['plain trace'] = plain
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        cpu = in_turn(contestants, image, rounds, time.process_time)
        top = profile(ours, image)
        torch.set_num_threads(threads)
        wall = in_turn(contestants, image, rounds, time.perf_counter)
    return dict(config=name, threads=threads, plain_trace_fails=broken, lowering_s=lowering, cpu_s=medians(cpu), wall_s=medians(wall),
                cpu_ratio=ratios(cpu), wall_ratio=ratios(wall),
                cpu_artifact_over_plain=against_plain(cpu), wall_artifact_over_plain=against_plain(wall), artifact_profile=top)


def saved_and_loaded(module: Any, file: Path) -> Any:
    """Save a module and load it, as a user does: the traced module would share the weights of eager, and find them in the cache."""
    import torch
    torch.jit.save(module, str(file))
    return torch.jit.load(str(file))


def failure(run: Callable[..., Any], image: Any) -> str | None:
    """Return why an unpatched trace cannot be timed: some do not even run on the image that they were traced with."""
    try:
        run(image)
    except RuntimeError as exc:
        return str(exc).strip().splitlines()[-1]
    return None


def ratios(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Return the median over the rounds of each one's time over eager's in the same round."""
    return {name: paired(seconds, name)['median'] for name in seconds}


def against_plain(seconds: dict[str, list[float]]) -> dict[str, float] | None:
    """Return the artifact's time over the plain trace's in the same round: median and quartiles."""
    return paired(seconds, 'artifact', 'plain trace') if 'plain trace' in seconds else None


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(times) for name, times in seconds.items()}


def profile(run: Callable[..., Any], image: Any) -> dict[str, float]:
    """Share of CPU time of the eight costliest operators, to show where the rest goes."""
    import torch
    with torch.profiler.profile() as record:
        run(image)
    events = record.key_averages()
    total = sum(event.self_cpu_time_total for event in events) or 1
    costly = sorted(events, key=lambda event: -event.self_cpu_time_total)[:8]
    return {event.key: round(event.self_cpu_time_total / total, 3) for event in costly}


if __name__ == '__main__':
    main()
