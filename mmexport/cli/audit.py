"""Find tensors on the wrong device in a model or in a TorchScript file."""
from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from . import options as opt
from .completion import devices

if TYPE_CHECKING:
    import torch

    from ..device.findings import Audit


@opt.command('audit', ('mmexport audit CONFIG CHECKPOINT', 'mmexport audit model.pt --fix fixed.pt'),
             short_help='Find tensors on the wrong device.')
@opt.argument('model')
@opt.argument('checkpoint', required=False)
@opt.option('--device', group=opt.MODEL, default='cuda', shell_complete=devices, help='The device to be; it need not exist.')
@opt.option('--shape', group=opt.MODEL, nargs=2, type=int, metavar='H W',
            help='Size of the input (as exported; 256 256 for a .pt without a manifest).')
@opt.cfg_options
@opt.option('--fix', group=opt.OUTPUT, is_flag=False, flag_value='', metavar='[OUT.pt]',
            help='Fix what can be fixed: a .pt is written to OUT.pt, a model is changed for the time of an export (export --fix) and '
                 'examined again.')
@opt.option('--json', group=opt.OUTPUT, metavar='FILE', help='Write the findings there.')
@opt.trust_checkpoint
@opt.debug
def command(args: SimpleNamespace) -> int:
    """Find every tensor on the wrong device, with its line, in MODEL: a config of mmdet or mmseg, or any TorchScript file (.pt). No GPU is
    needed. Exit code 0 clean, 1 findings."""
    return audit(args)


def audit(args: SimpleNamespace) -> int:
    """Print the findings; return 0 clean, 1 findings."""
    from ..model.build import parse_device
    from ..utils.line import Line
    from .printing import print_lines
    device = parse_device(args.device, ('cuda',))
    result = _of_script(args, device) if Path(args.model).suffix in ('.pt', '.ts', '.torchscript') else _of_config(args, device)
    print_lines([Line(line, 'green' if result.clean else 'yellow') if not number else line for number, line in enumerate(result.lines())])
    if args.fix:
        print(f'{args.fix} is written')
    if args.json:
        Path(args.json).write_text(json.dumps(result.as_dict(), indent=2) + '\n')
    return 0 if result.clean else 1


def _of_script(args: SimpleNamespace, device: torch.device) -> Audit:
    from ..device.script import audit_script, fix_script, inputs_for
    from ..errors import InputError
    inputs = inputs_for(args.model, args.shape)
    if args.fix is None:
        return audit_script(args.model, inputs, device)
    if not args.fix:
        raise InputError('--fix needs the name of the file to write, --fix OUT.pt')
    return fix_script(args.model, args.fix, inputs)


def _of_config(args: SimpleNamespace, device: torch.device) -> Audit:
    import torch

    from ..adapters import adapter_for
    from ..device.preflight import audit_adapter, audit_after_fix
    from ..errors import InputError
    from ..inputs.shapes import traced_shape
    from ..inputs.synthetic import picture
    from ..model.build import CheckpointOptions, load_model
    from ..model.config import export_section, levels_of, load_config
    from .overrides import parse_options
    if args.fix:
        raise InputError(f'--fix {args.fix}: a model is not written anywhere; leave out the name')
    options = parse_options(args.cfg_options)
    if args.shape:
        options['export.inputs.shape'] = list(args.shape)
    cfg = load_config(args.model, options)
    section = export_section(cfg)
    model, _ = load_model(cfg, args.checkpoint, 'cpu', CheckpointOptions(trust=args.trust_checkpoint))
    adapter = adapter_for(model, section, levels_of(section)[0], torch.device('cpu'))
    image = picture(traced_shape(cfg, section), 0, adapter)
    result = audit_adapter(adapter, image, device)
    return result if args.fix is None or result.clean else audit_after_fix(adapter, image, result, device)
