"""Audit the model for its device before anything is lowered."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..adapters.preprocess import preprocessed
from ..errors import DeviceError, eager_in_words
from . import Audit, audit_model
from .findings import Finding
from .fix import devices_fixed, fixable
from .placement import misplaced_tensors


def audit_adapter(adapter: Adapter, image: Tensor, device: torch.device) -> Audit:
    """Audit data_preprocessor, network and decisions on one `image`. They run on the CPU as if on `device`.

    Raises:
        InputError: the model itself fails on the image.
    """
    misplaced = misplaced_tensors(adapter.model)
    if misplaced:
        return Audit(str(device), tuple(misplaced))
    home, image = adapter.preprocess.mean.device, image.cpu()
    adapter.cpu()
    try:
        with eager_in_words({'traced': image}):
            return audit_model(adapter, lambda: _run(adapter, image), device, (image,), adapter.model)
    finally:
        adapter.to(home)


def preflight(adapter: Adapter, image: Tensor, device: torch.device, fix: bool) -> Audit:
    """Run `audit_adapter`; with `fix`, also check that fixing changes no output.

    Raises:
        DeviceError: the fixes change an output.
    """
    audit = audit_adapter(adapter, image, device)
    if fix and audit.findings:
        adapter.cpu()
        try:
            audit_after_fix(adapter, image.cpu(), audit, device)
        finally:
            adapter.to(device)
    return audit


def audit_after_fix(adapter: Adapter, image: Tensor, audit: Audit, device: torch.device) -> Audit:
    """Audit the fixed model, and check that its outputs on the CPU are the same.

    Raises:
        DeviceError: the fixes change an output.
    """
    target = torch.device('cuda', device.index or 0)
    with torch.no_grad():
        plain = adapter.run_on(image)
        with devices_fixed(adapter.model, audit, 'cpu'):
            again = adapter.run_on(image)
    if not all(torch.equal(one, other) for one, other in zip(plain, again, strict=True)):
        raise DeviceError('the fixes change the outputs on the CPU; fix the model by hand')

    done: list[str] = []

    def run() -> None:
        with devices_fixed(adapter.model, audit, target) as what:
            done.extend(what)
            _run(adapter, image)

    after = audit_model(adapter, run, target, (image,), adapter.model)
    return Audit(after.device, after.findings, after.branches, after.ops, audit.seconds + after.seconds, tuple(done))


def fatal(audit: Audit, device: torch.device, fix: bool) -> list[Finding]:
    """Return the findings that would break an export for `device`. On the CPU these are of the kinds dtype and placement."""
    findings = [row for row in audit.findings if device.type == 'cuda' or row.kind in ('dtype', 'placement')]
    return [] if fix and len(fixable(findings)) == len(findings) else findings


def stop_where_it_would_fail(audit: Audit, device: torch.device, fix: bool) -> None:
    if fatal(audit, device, fix):
        raise DeviceError('\n'.join([f'on {device} this model fails; fix it, or see what --fix can do:', *audit.lines()]))


def _run(adapter: Adapter, image: Tensor) -> Any:
    """Run data_preprocessor and adapter; the picture is on the CPU, as a data loader gives it."""
    if callable(getattr(adapter.model, 'data_preprocessor', None)):
        preprocessed(adapter.model, (100 * image[0].abs()).clamp(0, 255).to('cpu', torch.uint8))
    return adapter(*adapter.inputs_of(image))
