"""Measure what decisions cost: the file with final outputs over the one with raw outputs, in every format, timed in turn in one process.

    python benchmarks/final_cost.py --out benchmarks/results/final_cost.json

Seeded weights (`make_checkpoint`'s), so that queries are kept and dropped as in a trained model. Wall time, all threads; with --cpu-time
the CPU time of all threads, which work beside the run disturbs least.
"""
from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from common import CONFIGS, quiet, write
from rounds import Others, in_turn, paired

FORMATS = ('torchscript', 'onnx', 'openvino', 'torch_export')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--configs', nargs='*', default=['mask2former_r50', 'maskformer_r50', 'pspnet'], help='names from configs/')
    parser.add_argument('--formats', nargs='*', default=FORMATS)
    parser.add_argument('--size', nargs=2, type=int, default=(512, 512), metavar=('H', 'W'))
    parser.add_argument('--rounds', type=int, default=10)
    parser.add_argument('--cpu-time', action='store_true', help='CPU time instead of wall time')
    parser.add_argument('--out', type=Path, required=True)
    args = parser.parse_args()
    quiet()
    rows: list[dict[str, Any]] = []
    for name in args.configs:
        for backend, row in measured(name, args.formats, tuple(args.size), args.rounds, args.cpu_time):
            rows.append(dict(config=name, backend=backend, **row))
            write(args.out, rows, size=args.size, rounds=args.rounds, clock='CPU' if args.cpu_time else 'wall')
            print(f"{name:<24}{backend:<14} final/raw {row['final_over_raw']['median']:.3f}", flush=True)


def measured(name: str, formats: list[str], size: tuple[int, int], rounds: int, cpu_time: bool = False) -> Any:
    import torch

    from mmexport.adapters import build_adapter
    from mmexport.adapters.guard import InputGuard
    from mmexport.backends import build_backend
    from mmexport.device.unregistered_tensors import stop_gradients
    from mmexport.export.manifest import describe
    from mmexport.export.versions import versions
    from mmexport.inputs.synthetic import picture
    from mmexport.model.build import build_model
    from mmexport.model.config import load_config
    from mmexport.patching import patched
    from mmexport.seeding import seed_model
    cfg = load_config(CONFIGS / f'{name}.py')
    model = build_model(cfg)
    seed_model(model, size=size)
    stop_gradients(model)
    for format_name in formats:
        with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
            runs: dict[str, Callable[..., Any]] = {}
            for outputs in ('raw', 'final'):
                adapter = build_adapter(model, outputs=outputs)
                image = picture((1, 3, *size), 0, adapter)
                adapter.guard = InputGuard(tuple(image.shape), ('batch', 'height', 'width'))
                backend = build_backend(format_name)
                with patched('auto') as applied:
                    manifest = describe(adapter, image, applied, versions(), cfg, None)
                    artifact = backend.lower(adapter, image, Path(folder) / outputs, manifest)
                runs[outputs] = backend.load(artifact, 'cpu')
            others = Others()
            seconds = in_turn(runs, image, rounds, process_time if cpu_time else perf_counter)
        medians = {outputs: statistics.median(times) for outputs, times in seconds.items()}
        yield format_name, dict(threads=torch.get_num_threads(), seconds=medians, final_over_raw=paired(seconds, 'final', 'raw'),
                                others=others.load())


if __name__ == '__main__':
    main()
