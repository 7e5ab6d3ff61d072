"""Run ``tools/audit.py``: exit code 0 clean, 1 findings, 2 wrong input."""
from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from ..device.findings import Audit
from ..device.script import audit_script, fix_script
from ..errors import InputError

SCRIPT_SHAPE = (256, 256)


def audit(args: argparse.Namespace) -> int:
    try:
        device = torch.device(args.device)
    except RuntimeError as exc:
        raise InputError(f'--device {args.device}: expected cuda or cuda:N') from exc
    found = _of_script(args, device) if Path(args.model).suffix in ('.pt', '.ts', '.torchscript') else _of_config(args, device)
    print('\n'.join(found.lines()))
    if args.fix:
        print(f'{args.fix} is written')
    if args.json:
        Path(args.json).write_text(json.dumps(found.as_dict(), indent=2) + '\n')
    return 0 if found.clean else 1


def _of_script(args: argparse.Namespace, device: torch.device) -> Audit:
    image = torch.randn(1, 3, *(args.shape or SCRIPT_SHAPE), generator=torch.Generator().manual_seed(0))
    if args.fix is None:
        return audit_script(args.model, image, device)
    if not args.fix:
        raise InputError('--fix needs the name of the file to write, --fix OUT.pt')
    return fix_script(args.model, args.fix, image)


def _of_config(args: argparse.Namespace, device: torch.device) -> Audit:
    from ..adapters import build_adapter
    from ..device.preflight import audit_adapter, mended_audit
    from ..inputs.shapes import traced_shape
    from ..inputs.synthetic import picture
    from ..model.build import CheckpointOptions, load_model
    from ..model.config import export_section, load_config
    from .export import parse_options
    if args.fix:
        raise InputError(f'--fix {args.fix}: a model is not written anywhere; leave out the name')
    options = parse_options(args.cfg_options)
    if args.shape:
        options['export.inputs.shape'] = list(args.shape)
    cfg = load_config(args.model, options)
    section = export_section(cfg)
    model, _ = load_model(cfg, args.checkpoint, 'cpu', CheckpointOptions(trust=args.trust_checkpoint))
    adapter = build_adapter(model, section['task'], section['outputs'], bool(section['inputs']['normalize']))
    image = picture(traced_shape(cfg, section), 0, adapter)
    found = audit_adapter(adapter, image, device)
    return found if args.fix is None or found.clean else mended_audit(adapter, image, found, device)
