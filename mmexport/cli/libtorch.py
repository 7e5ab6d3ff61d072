"""Export TorchScript with the option names of mmseg 0.x: CONFIG --checkpoint FILE --shape H W --output-file FILE --verify --show."""
from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from . import options as opt
from .completion import devices


@opt.command('pytorch2libtorch', ('python tools/pytorch2libtorch.py CONFIG --checkpoint ckpt.pth --shape 512 1024 --verify',))
@opt.argument('config')
@opt.option('--checkpoint', group=opt.MODEL, help='Without one: the weights that the model is built with.')
@opt.option('--shape', group=opt.MODEL, several=True, type=int, metavar='SIDE', help='H W, or one side of a square.')
@opt.option('--device', group=opt.MODEL, default='cpu', shell_complete=devices, help='Where it is traced and checked (cpu).')
@opt.cfg_options
@opt.option('--output-file', group=opt.OUTPUT, default='tmp.pt', help='The TorchScript file to write (tmp.pt).')
@opt.option('--show', group=opt.OUTPUT, is_flag=True, help='Write OUTPUT.png: picture, eager and exported predictions.')
@opt.option('--verify', group=opt.CHECK, is_flag=True, help='Compare with the unpatched eager model.')
@opt.option('--input-img', group=opt.CHECK, help='The picture for --verify and --show.')
@opt.trust_checkpoint
@opt.debug
def command(args: SimpleNamespace) -> int:
    """Export CONFIG to TorchScript by the options of mmseg 0.x; new scripts use mmexport export."""
    return pytorch2libtorch(args)


def pytorch2libtorch(args: SimpleNamespace) -> int:
    """Export; return 0 written (and, with ``--verify``, verified), 1 not shown to be right."""
    from ..errors import InputError
    from ..export.exporter import Exporter
    from ..model.build import CheckpointOptions
    from ..model.config import export_section, levels_of, load_config
    from ..report.label_maps import draw_label_maps
    from .outcome import exit_code
    from .overrides import parse_options
    from .printing import print_lines
    cfg = load_config(args.config, parse_options(args.cfg_options))
    section: dict[str, Any] = {'export.backends': [dict(type='TorchScript')]}
    if args.shape:
        section['export.inputs.shape'] = [1, 3, args.shape[0], args.shape[-1]]
    if args.input_img:
        section['export.inputs.image'] = args.input_img
    cfg.merge_from_dict(section)
    if args.shape and len(args.shape) > 2:
        raise InputError(f'--shape {" ".join(map(str, args.shape))}: one side or two were expected, H W')
    if levels_of(section_of_cfg := export_section(cfg)) != ('final',) and (args.show or len(levels_of(section_of_cfg)) > 1):
        raise InputError(f"export.outputs is {section_of_cfg['outputs']!r}: --show draws label maps, and one file is written")
    output = Path(args.output_file)
    exporter = Exporter(cfg, args.checkpoint, output.with_name(f'{output.name}.export'), args.device, checking=args.verify,
                        options=CheckpointOptions(trust=args.trust_checkpoint), quiet=False)
    report, = exporter.run()
    print_lines(report.lines())
    code = exit_code(report, not args.verify)
    if code == 0:
        _place(report.artifacts[0].file, output)
        print(f'wrote {output}')
    if args.show:
        drawing = output.with_name(f'{output.name}.png')
        share = draw_label_maps(exporter.adapter, report.artifacts[0].file, exporter.shape, exporter.device, args.input_img, drawing)
        print(f'wrote {drawing}: picture, eager, exported ({share:.3%} of the pixels agree)')
    return code


def _place(file: Path, output: Path) -> None:
    draft = output.with_name(f'.{output.name}.{os.getpid()}')
    shutil.copyfile(file, draft)
    draft.replace(output)
