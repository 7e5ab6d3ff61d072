"""Run the acceptance on a GPU: files lowered on either device, run on both, against the unpatched eager model with mmcv's own kernels.

    python benchmarks/gpu_acceptance.py --device cuda --out benchmarks/results/gpu-h200.json
Also: an unpatched trace, to show the fault that the patches answer; latency p50/p95 of eager and artifact with TF32 off and on; peak
memory; the file on a second device, where there is one; planted device faults before and after fixing (gpu_faults.py); our forms of NMS,
RoIAlign and deformable convolution against mmcv's kernels (op_speed.py). Parity is measured with TF32 off. What was not run is absent.
With --device cpu --tiny it runs anywhere in minutes.
"""
from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_faults
import op_speed
import torch
from common import CONFIGS, ROOT, quiet, write
from torch import Tensor, nn

MODELS = ('mask2former_r50', 'mask2former_swin_t', 'pspnet', 'upernet_swin', 'segformer_b0', 'hrnet_ocr', 'pointrend')
TOLERANCE, NOISES = 1e-4, 3


def main() -> int:
    args = parse()
    quiet()
    device = torch.device(args.device)
    exact_arithmetic(True)
    rows: list[dict[str, Any]] = []
    head: dict[str, Any] = dict(device=str(device), card=card(device), tolerance=TOLERANCE, tiny=args.tiny)
    for name in args.models:
        started = time.perf_counter()
        try:
            row = accept(name, device, args)
        except Exception as exc:  # One model that fails must not cost the lease the other six; it is recorded and fails the run.
            row = dict(passed=False, error=f'{type(exc).__name__}: {exc}', trace=traceback.format_exc(limit=-6))
        rows.append(dict(model=name, seconds=round(time.perf_counter() - started, 1), **row))
        write(args.out, rows, **head)
        print(f"{name:<22}{'pass' if row['passed'] else 'FAIL'} {row.get('error', '')} {row.get('latency', '')}", flush=True)
    faults: list[dict[str, Any]] = []
    if not args.no_faults:
        faults = gpu_faults.rows(device)
        head['faults'] = faults
        write(args.out, rows, **head)
        print(f"planted faults and look-alikes as predicted: {sum(row['passed'] for row in faults)} of {len(faults)}", flush=True)
    ops: list[dict[str, Any]] = []
    if not args.no_ops:
        ops = [dict(row, passed=row['error'] < TOLERANCE) for row in op_speed.timed(device, args.calls)]
        write(args.out, rows, **head, ops=ops)
        for row in ops:
            print(op_speed.in_words(row), flush=True)
    return 0 if all(row['passed'] for row in (*rows, *faults, *ops)) else 1


def card(device: torch.device) -> str | None:
    return torch.cuda.get_device_name(device) if device.type == 'cuda' else None


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--models', nargs='*', default=MODELS)
    parser.add_argument('--tiny', action='store_true', help='the small variants that the tests use')
    parser.add_argument('--no-faults', action='store_true', help='leave out the planted device faults')
    parser.add_argument('--no-ops', action='store_true', help="leave out our forms of mmcv's ops")
    parser.add_argument('--calls', type=int, default=100, help='timed calls of each')
    return parser.parse_args()


def accept(name: str, device: torch.device, args: argparse.Namespace) -> dict[str, Any]:
    from mmexport.adapters import build_adapter
    from mmexport.backends import build_backend
    from mmexport.device.unregistered_tensors import stop_gradients
    from mmexport.inputs.shapes import plan_shapes, traced_shape
    from mmexport.inputs.size_rules import SizeRules
    from mmexport.inputs.synthetic import scenes
    from mmexport.model.config import export_section
    from mmexport.patching import patched
    from mmexport.utils.progress import Progress
    from mmexport.verification.expected import expect, recomputed_floors
    from mmexport.verification.network_runs import NetworkRuns
    from mmexport.verification.patched_eager import with_patched
    from mmexport.verification.verify import verify
    cfg, model = seeded(name, args.tiny)
    stop_gradients(model)
    adapter = build_adapter(model, outputs='raw')
    section = export_section(cfg)
    plan = plan_shapes(traced_shape(cfg, section), section, SizeRules())
    devices = list(dict.fromkeys([torch.device('cpu'), device]))
    samples, files = {}, {}
    backend = build_backend('torchscript')
    with tempfile.TemporaryDirectory() as folder:
        for place in devices:
            adapter.to(place)
            images = scenes(plan.shapes, adapter, place)
            expected = expect(adapter, images, TOLERANCE, NOISES, NetworkRuns())
            with patched('auto'):
                samples[place] = with_patched(adapter, expected, place, NetworkRuns())
                manifest = dict(outputs=[spec.as_dict() for spec in adapter.specs], num_classes=adapter.num_classes)
                files[place] = backend.lower(adapter, images['traced'], Path(folder) / place.type, manifest)
        checks: dict[str, Any] = {}
        for made_on, artifact in files.items():
            for run_on in devices:
                check = verify(artifact, samples[run_on], TOLERANCE, run_on, Path(folder) / 'scratch')
                closer = recomputed_floors(adapter.to(run_on), samples[run_on], [check], TOLERANCE, run_on, Progress(quiet=True))
                if closer is not None:
                    check = verify(artifact, closer, TOLERANCE, run_on, Path(folder) / 'scratch')
                checks[f'lowered on {made_on}, run on {run_on}'] = dict(passed=check.passed, reason=check.reason, worst=worst(check.rows))
            for second in other_devices(device):
                check = verify(artifact, samples[device], TOLERANCE, second, Path(folder) / 'scratch')
                checks[f'lowered on {made_on}, run on {second}'] = dict(passed=check.passed, reason=check.reason, worst=worst(check.rows))
        adapter.to(device)
        image = scenes(plan.shapes, adapter, device)['traced']
        ours = torch.jit.load(str(files[device].file), map_location=device)
        return dict(passed=all(check['passed'] for check in checks.values()), checks=checks,
                    unpatched_trace=unpatched_trace(adapter, image), latency=latency(adapter, ours, image, args.calls),
                    peak_memory_bytes=peak_memory(adapter, ours, image))


def other_devices(device: torch.device) -> list[torch.device]:
    """Return the next CUDA device, if there is one: its samples are the first one's, the arithmetic being the same."""
    if device.type != 'cuda' or torch.cuda.device_count() < 2:
        return []
    return [torch.device('cuda', ((device.index or 0) + 1) % torch.cuda.device_count())]


def seeded(name: str, tiny: bool) -> tuple[Any, nn.Module]:
    from mmexport.inputs.shapes import traced_shape
    from mmexport.model.build import build_model
    from mmexport.model.config import export_section, load_config
    from mmexport.seeding import seed_model
    if tiny:
        sys.path.insert(0, str(ROOT))
        from tests.tiny import tiny as small
        cfg = small(name)
    else:
        cfg = load_config(CONFIGS / f'{name}.py')
    model = build_model(cfg)
    seed_model(model, size=traced_shape(cfg, export_section(cfg))[2:])
    return cfg, model


def worst(rows: list[Any]) -> dict[str, float]:
    """Return by stage the largest error of scale over samples and outputs."""
    actual: dict[str, float] = {}
    for row in rows:
        if row.max_rel is not None:
            actual[row.stage] = max(actual.get(row.stage, 0.0), row.max_rel)
    return actual


def unpatched_trace(adapter: nn.Module, image: Tensor) -> dict[str, Any]:
    """Show the fault in the field: traced without patches, run on another picture of the same size; on CUDA the kernel's output is lost."""
    with torch.no_grad():
        try:
            traced = torch.jit.trace(adapter, (image,), check_trace=False)
            other = image.flip(-1)
            pairs = list(zip(adapter(other), traced(other), strict=True))
        except Exception as exc:  # An unpatched trace may also simply fail, which is as much of a finding.
            return dict(error=f'{type(exc).__name__}: {str(exc).strip().splitlines()[-1][:200]}')
    return dict(max_rel=max(float((one - two).abs().max() / one.abs().max()) for one, two in pairs))


def latency(eager: Callable[..., Any], ours: Callable[..., Any], image: Tensor, calls: int) -> dict[str, Any]:
    """Return milliseconds p50 and p95 after 20 calls (TorchScript recompiles on the first), with TF32 off and, on CUDA, on."""
    actual: dict[str, Any] = {}
    for tf32 in (False, True) if image.is_cuda else (False,):
        exact_arithmetic(not tf32)
        actual['tf32 on' if tf32 else 'tf32 off'] = {
            name: percentiles(timed(run, image, calls)) for name, run in (('eager', eager), ('artifact', ours))}
    exact_arithmetic(True)
    return actual


def timed(run: Callable[..., Any], image: Tensor, calls: int) -> list[float]:
    seconds = []
    with torch.no_grad():
        for call in range(20 + calls):
            synchronize(image)
            started = time.perf_counter()
            run(image)
            synchronize(image)
            if call >= 20:
                seconds.append(time.perf_counter() - started)
    return seconds


def percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return dict(p50_ms=1e3 * ordered[len(ordered) // 2], p95_ms=1e3 * ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)])


def peak_memory(eager: Callable[..., Any], ours: Callable[..., Any], image: Tensor) -> dict[str, int] | None:
    if not image.is_cuda:
        return None
    actual = {}
    with torch.no_grad():
        for name, run in (('eager', eager), ('artifact', ours)):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(image.device)
            run(image)
            synchronize(image)
            actual[name] = torch.cuda.max_memory_allocated(image.device)
    return actual


def synchronize(image: Tensor) -> None:
    if image.is_cuda:
        torch.cuda.synchronize(image.device)


def exact_arithmetic(exact: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = not exact
    torch.backends.cudnn.allow_tf32 = not exact


if __name__ == '__main__':
    sys.exit(main())
