"""Export a model and show that the file is right: python tools/export.py CONFIG CHECKPOINT --backend torchscript."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='export', description=__doc__)
    parser.add_argument('config', help='any mmdet 3.x or mmseg 1.x config')
    parser.add_argument('checkpoint', help='.pth or .safetensors')
    parser.add_argument('--backend', nargs='+', metavar='NAME',
                        help="formats, or 'all' that are installed; replaces the config's export.backends (torchscript)")
    parser.add_argument('--work-dir', default=None, help='default: work_dirs/CONFIG')
    parser.add_argument('--device', default='cpu', help='cpu, cuda or cuda:N')
    parser.add_argument('--shape', nargs=2, type=int, metavar=('H', 'W'), help='size of the traced input')
    parser.add_argument('--batch', type=int, help='batch of the traced input (1)')
    parser.add_argument('--image', '--images', nargs='+', metavar='FILE', default=[],
                        help='pictures of what the model was trained on, or folders of them: each is an input, and goes through test_step')
    parser.add_argument('--accept-branch', nargs='+', metavar='FILE:LINE', default=[],
                        help='answer for a Python branch on a size that no input can turn; the manifest says so')
    parser.add_argument('--outputs', nargs='+', choices=('final', 'raw'), metavar='final|raw',
                        help='decisions at input size (the default), or the network\'s own outputs; both: a folder each')
    parser.add_argument('--cfg-options', nargs='+', default=[], metavar='K=V', help='override config values')
    parser.add_argument('--ema', action='store_true', help='take the averaged weights')
    parser.add_argument('--trust-checkpoint', action='store_true', help='read a pickle with classes of its own; it can run code')
    parser.add_argument('--allow-partial', action='store_true', help='load although weights are missing or of another shape')
    parser.add_argument('--fix', action='store_true', help='mend tensors on the wrong device for the time of the export (tools/audit.py)')
    parser.add_argument('--progressive', action='store_true',
                        help='the backbone, then backbone and neck, then all; keeps the largest part that is right')
    parser.add_argument('--no-verify', action='store_true', help='only lower; the report then says "not run"')
    parser.add_argument('--no-samples', action='store_true', help='leave inputs and expected outputs out of the folder')
    parser.add_argument('--no-diagnose', action='store_true', help='after a failure do not look for the smallest module that fails')
    parser.add_argument('--debug', action='store_true', help='show the trace behind an error')
    parser.add_argument('--verbose', action='store_true', help='every row of formats that pass, too')
    parser.add_argument('--quiet', action='store_true', help='no progress and no table')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    from mmexport.cli.export import export, guarded
    return guarded(lambda: export(args), args.debug)


if __name__ == '__main__':
    sys.exit(main())
