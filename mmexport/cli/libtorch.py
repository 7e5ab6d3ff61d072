"""Export TorchScript with the option names of mmseg 0.x: CONFIG --checkpoint FILE --shape H W --output-file FILE --verify --show."""
from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from . import options as opt

if TYPE_CHECKING:
    import torch

    from ..export.exporter import Exporter


@opt.command('pytorch2libtorch', ('python tools/pytorch2libtorch.py CONFIG --checkpoint ckpt.pth --shape 512 1024 --verify',))
@click.argument('config')
@opt.option('--checkpoint', group=opt.MODEL, help='Without one: the weights that the model is built with.')
@opt.option('--shape', group=opt.MODEL, several=True, type=int, metavar='SIDE', help='H W, or one side of a square.')
@opt.option('--device', group=opt.MODEL, default='cpu', help='Where it is traced and checked: cpu, cuda, cuda:N (cpu).')
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
    from .outcome import exit_code
    from .overrides import parse_options
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
    print('\n'.join(report.lines()))
    code = exit_code(report, not args.verify)
    if code == 0:
        _place(report.artifacts[0].file, output)
        print(f'wrote {output}')
    if args.show:
        _show(exporter, report.artifacts[0].file, args.input_img, output.with_name(f'{output.name}.png'))
    return code


def _place(file: Path, output: Path) -> None:
    draft = output.with_name(f'.{output.name}.{os.getpid()}')
    shutil.copyfile(file, draft)
    draft.replace(output)


def _show(exporter: Exporter, file: Path, input_img: str | None, path: Path) -> None:
    """Write the picture, eager's labels and the file's labels side by side."""
    import cv2
    import numpy as np
    import torch

    from ..errors import UnsupportedModelError
    from ..inputs.synthetic import photograph, picture
    adapter, shape = exporter.adapter, exporter.shape
    if adapter.specs[0].name not in ('labels', 'panoptic'):
        raise UnsupportedModelError(f'--show draws label maps, and this model gives {adapter.specs[0].name}')
    image = photograph(input_img, shape[2:], adapter).expand(shape).contiguous() if input_img else picture(shape, 0, adapter)
    image = image.to(exporter.device)
    with torch.no_grad():
        eager = adapter.run_on(image)[0][0].cpu()
        exported = torch.jit.load(str(file), map_location=exporter.device)(image)[0][0].cpu()
    shown = (image if adapter.preprocess.inside else adapter.preprocess.undo(image))[0].clamp(0, 255).permute(1, 2, 0)
    drawn = shown.cpu().numpy().astype(np.uint8)
    cv2.imwrite(str(path), np.concatenate([drawn, _colours(eager), _colours(exported)], axis=1))
    print(f'wrote {path}: picture, eager, exported ({float((eager == exported).double().mean()):.3%} of the pixels agree)')


def _colours(labels: torch.Tensor) -> Any:
    """Return a fixed colour for each label: (H, W) -> (H, W, 3)."""
    import numpy as np
    values = labels.numpy().astype(np.int64)
    return np.stack([(values * factor + shift) % 256 for factor, shift in ((37, 60), (91, 120), (151, 200))], axis=-1).astype(np.uint8)
