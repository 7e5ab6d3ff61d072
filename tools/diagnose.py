"""Why a format fails, to the module and the line: python tools/diagnose.py CONFIG CHECKPOINT --backend onnx."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='diagnose', description=__doc__)
    parser.add_argument('config', help='any mmdet 3.x or mmseg 1.x config')
    parser.add_argument('checkpoint', help='.pth or .safetensors')
    parser.add_argument('--backend', nargs='+', metavar='NAME', help="formats, or 'all' that are installed (torchscript)")
    parser.add_argument('--work-dir', default=None, help='gets failed/repro_<backend>.py (work_dirs/CONFIG)')
    parser.add_argument('--device', default='cpu', help='cpu, cuda or cuda:N')
    parser.add_argument('--shape', nargs=2, type=int, metavar=('H', 'W'), help='size of the traced input')
    parser.add_argument('--batch', type=int, help='batch of the traced input (1)')
    parser.add_argument('--outputs', nargs=1, choices=('final', 'raw'), help='decisions at input size, or the network\'s own outputs')
    parser.add_argument('--cfg-options', nargs='+', default=[], metavar='K=V', help='override config values')
    parser.add_argument('--trust-checkpoint', action='store_true', help='read a pickle with classes of its own; it can run code')
    parser.add_argument('--json', metavar='F', help='write the diagnoses there')
    parser.add_argument('--debug', action='store_true', help='show the trace behind an error')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    from mmexport.cli.diagnose import diagnose
    from mmexport.cli.export import guarded
    return guarded(lambda: diagnose(args), args.debug)


if __name__ == '__main__':
    sys.exit(main())
