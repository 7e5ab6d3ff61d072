"""Write a checkpoint of seeded weights."""
from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from . import options as opt


@opt.command('checkpoint', ('mmexport checkpoint configs/fcn.py fcn.pth',), short_help='Write seeded weights, for demos and tests.')
@opt.argument('config')
@opt.argument('out')
@opt.option('--seed', group=opt.MODEL, type=int, default=0, help='Seed of the random weights (0).')
@opt.cfg_options
@opt.debug
def command(args: SimpleNamespace) -> int:
    """Write seeded and calibrated weights for CONFIG to OUT (.pth). Outputs vary enough with them to be compared, in demos and tests."""
    return make_checkpoint(args)


def make_checkpoint(args: SimpleNamespace) -> int:
    """Write the checkpoint; return 0."""
    from ..model.config import load_config
    from ..seeding.checkpoint import write_checkpoint
    from ..utils.progress import Progress
    from .overrides import parse_options
    cfg = load_config(args.config, parse_options(args.cfg_options))
    with Progress()('Seeding and calibrating the weights'):
        write_checkpoint(cfg, args.out, args.seed)
    print(f'{args.out}: seeded weights (seed {args.seed}) for {Path(args.config).name}, for demos and tests only')
    return 0
