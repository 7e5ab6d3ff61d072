"""The door that mmseg 0.x users know: CONFIG --checkpoint FILE --shape H W --output-file FILE --verify --show."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='pytorch2libtorch', description=__doc__)
    parser.add_argument('config', help='of mmdet or mmseg')
    parser.add_argument('--checkpoint', help='without one: the weights that the model is built with')
    parser.add_argument('--shape', nargs='+', type=int, default=None, metavar='SIDE', help='H W, or one side of a square')
    parser.add_argument('--output-file', default='tmp.pt', help='the TorchScript file to write (tmp.pt)')
    parser.add_argument('--verify', action='store_true', help='compare with the unpatched eager model')
    parser.add_argument('--show', action='store_true', help='write OUTPUT.png: picture, eager and exported predictions')
    parser.add_argument('--input-img', help='the picture for --verify and --show')
    parser.add_argument('--device', default='cpu', help='where it is traced and checked: cpu, cuda, cuda:N (cpu)')
    parser.add_argument('--cfg-options', nargs='+', default=[], metavar='K=V', help='override config values')
    parser.add_argument('--trust-checkpoint', action='store_true', help='read a pickle with classes of its own; it can run code')
    parser.add_argument('--debug', action='store_true', help='show the trace behind an error')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    from mmexport.cli.export import guarded
    from mmexport.cli.pytorch2libtorch import pytorch2libtorch
    return guarded(lambda: pytorch2libtorch(args), args.debug)


if __name__ == '__main__':
    sys.exit(main())
