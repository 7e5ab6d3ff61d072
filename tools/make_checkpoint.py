"""Write a seeded checkpoint whose outputs are worth comparing; for demos and tests, it knows nothing of the world."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='make_checkpoint', description=__doc__)
    parser.add_argument('config', help='of mmdet or mmseg')
    parser.add_argument('out', help='the .pth to write')
    parser.add_argument('--seed', type=int, default=0, help='of the random weights (0)')
    parser.add_argument('--cfg-options', nargs='+', default=[], metavar='K=V', help='override config values')
    parser.add_argument('--debug', action='store_true', help='show the trace behind an error')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    from mmexport.cli.export import guarded, make_checkpoint
    return guarded(lambda: make_checkpoint(args), args.debug)


if __name__ == '__main__':
    sys.exit(main())
