"""Run tools/export.py --outputs final raw on the configs of a package: python tools/sweep.py --packages mmseg --out DIR."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='sweep', description=__doc__)
    parser.add_argument('--packages', nargs='+', default=['mmseg'], help='mmseg, mmdet')
    parser.add_argument('--match', metavar='REGEX', help='every config whose name has it, instead of the smallest of each folder')
    parser.add_argument('--backend', nargs='+', default=['torchscript', 'onnx', 'torch_export', 'openvino'], metavar='NAME',
                        help="formats, or 'all' that are installed")
    parser.add_argument('--shape', nargs=2, type=int, metavar=('H', 'W'), help='size of the traced input, as of tools/export.py')
    parser.add_argument('--image', '--images', nargs='+', metavar='FILE', default=[], help='pictures or folders, as of tools/export.py')
    parser.add_argument('--out', required=True, metavar='DIR', help='gets done.sqlite, zoo.md, zoo.json and the seeded weights')
    parser.add_argument('--address', help="of a Ray cluster ('auto'); without it one is started here")
    parser.add_argument('--workers', type=int, help='how many jobs at once, one core each (all cores)')
    parser.add_argument('--limit', type=float, default=3600, help='seconds for a job, which is one config in all formats (3600)')
    parser.add_argument('--memory', type=float, default=10, help='GB for a job (10)')
    parser.add_argument('--known', metavar='ZOO.json', help='rows of an earlier sweep, on whichever machine: what it did under the same '
                        'versions and commit is not done again')
    parser.add_argument('--again', action='store_true', help='do what failed once more; what ran out of time or memory is done again '
                        'anyway where --limit or --memory is larger than it was')
    parser.add_argument('--commit', help='what the rows are kept under instead of the present commit')
    parser.add_argument('--debug', action='store_true', help='show the trace behind an error')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    from mmexport.cli.export import guarded
    from mmexport.cli.sweep import run
    return guarded(lambda: run(args), args.debug)


if __name__ == '__main__':
    sys.exit(main())
