"""Test planted device faults on a real device: does what the audit foretells happen there, and does what it calls clean run there?

Part of gpu_acceptance.py. On a CPU nothing can lie on a wrong device: there only dtypes crash, the rest shows that the script works.
"""
from __future__ import annotations

import importlib
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from common import ROOT
from torch import Tensor

SHAPE, TOLERANCE = (1, 3, 64, 96), 1e-4


def rows(device: torch.device, places: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return one row for each fault and each look-alike in each place (all); `passed` where the device does what was predicted."""
    sys.path.insert(0, str(ROOT))
    from tests.device.planted import CLEAN, FAULTS, PLACES, clean_source, source
    actual = []
    for place in places or PLACES:
        for fault in FAULTS:
            with project(source(place, fault)) as (adapter, image, folder):
                actual.append(dict(fault=fault, place=place, **_fault(adapter, image, folder, device)))
        for case, forward in CLEAN.items():
            with project(clean_source(place, forward)) as (adapter, image, _):
                actual.append(dict(clean=case, place=place, **_clean(adapter, image, device)))
    return actual


@contextmanager
def project(code: str) -> Iterator[tuple[Any, Tensor, Path]]:
    """Make a user's project with `code` as its module: the adapter of its model, an input, and its folder."""
    from mmexport.adapters import build_adapter
    from mmexport.device.unregistered_tensors import stop_gradients
    from mmexport.inputs.synthetic import picture
    from mmexport.model.build import build_model
    from mmexport.model.config import load_config
    from tests.device.planted import CONFIG
    with tempfile.TemporaryDirectory() as folder:
        name = f'own_{Path(folder).name}'.replace('-', '_')
        (Path(folder) / f'{name}.py').write_text(code)
        (Path(folder) / 'config.py').write_text(CONFIG.format(module=name))
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        try:
            adapter = build_adapter(build_model(load_config(Path(folder) / 'config.py')).eval(), outputs='raw')
            stop_gradients(adapter)
            yield adapter, picture(SHAPE, 0, adapter), Path(folder)
        finally:
            sys.path.remove(folder)
            sys.modules.pop(name, None)


def _fault(adapter: Any, image: Tensor, folder: Path, device: torch.device) -> dict[str, Any]:
    from mmexport.device import audit_model, devices_fixed
    from mmexport.device.fix import fixable
    audit = audit_model(adapter, lambda: adapter(image), 'cuda', (image,), adapter.model)
    row: dict[str, Any] = dict(kinds=[finding.kind for finding in audit.findings])
    predicted = any(kind == 'dtype' or device.type == 'cuda' for kind in row['kinds'])
    if 'dtype' not in row['kinds']:
        with torch.no_grad():
            expected = adapter(image)[0]
        row['artifact'] = _artifact(adapter, image, expected, folder, device)
    adapter.to(device)
    row['eager'] = _attempt(adapter, image.to(device))
    passed = (row['eager'] != 'ran') == predicted
    if len(fixable(audit.findings)) == len(audit.findings):
        with devices_fixed(adapter.model, audit, device):
            row['eager, fixed'] = _attempt(adapter, image.to(device), expected)
        passed &= row['eager, fixed'] == 'ran' and row['artifact']['passed']
    return dict(passed=bool(passed and audit.findings), **row)


def _artifact(adapter: Any, image: Tensor, wanted: Tensor, folder: Path, device: torch.device) -> dict[str, Any]:
    """Trace the faulty model on the CPU, freeze it, and load it on `device` before and after its file is fixed."""
    from mmexport.device.script import audit_script, fix_script
    before, after = folder / 'before.pt', folder / 'after.pt'
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        traced = torch.jit.trace(adapter, (image,), check_trace=False)
        torch.jit.freeze(traced.eval(), optimize_numerics=False).save(str(before))
    predicted = len(audit_script(before, (image,), 'cuda').findings)
    left = fix_script(before, after, (image,))
    ran = {path.stem: _attempt(torch.jit.load(str(path), map_location=device), image.to(device), wanted) for path in (before, after)}
    as_expected = device.type != 'cuda' or (ran['before'] != 'ran') == bool(predicted)
    return dict(predicted=predicted, **ran, passed=bool(as_expected and ran['after'] == 'ran' and left.clean))


def _clean(adapter: Any, image: Tensor, device: torch.device) -> dict[str, Any]:
    from mmexport.device import audit_model
    audit = audit_model(adapter, lambda: adapter(image), 'cuda', (image,), adapter.model)
    ran = _attempt(adapter.to(device), image.to(device))
    return dict(passed=audit.clean and ran == 'ran', kinds=[finding.kind for finding in audit.findings], eager=ran)


def _attempt(run: Callable[..., Any], image: Tensor, wanted: Tensor | None = None) -> str:
    """Return 'ran', the last line of what was raised, or how far the outputs are from `wanted`."""
    try:
        with torch.no_grad():
            actual = run(image)[0]
            if image.is_cuda:
                torch.cuda.synchronize(image.device)
    except Exception as exc:  # A crash is what is being looked for.
        return f'{type(exc).__name__}: {(str(exc).strip().splitlines() or [""])[-1][:200]}'
    if wanted is not None:
        error = float((actual.cpu() - wanted.cpu()).abs().max() / wanted.abs().max())
        if not error <= TOLERANCE:
            return f'off by {error:.1e}'
    return 'ran'
