"""Find every tensor on the wrong device, to the line: python tools/audit.py CONFIG [CHECKPOINT], or MODEL.pt; no GPU is needed."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='audit', description=__doc__)
    parser.add_argument('model', help="a config of mmdet or mmseg, or anybody's TorchScript file (.pt)")
    parser.add_argument('checkpoint', nargs='?', help='.pth or .safetensors; without one: the weights that the model is built with')
    parser.add_argument('--device', default='cuda', help='the device to be; it need not exist')
    parser.add_argument('--shape', nargs=2, type=int, metavar=('H', 'W'), help='size of the input (as exported; 256 256 for a .pt)')
    parser.add_argument('--json', metavar='F', help='write the findings there')
    parser.add_argument('--fix', nargs='?', const='', metavar='OUT.pt', help='mend what can be mended: a .pt is written to OUT.pt, a model '
                        'is mended for the time of an export (export.py --fix) and looked at again')
    parser.add_argument('--cfg-options', nargs='+', default=[], metavar='K=V', help='override config values')
    parser.add_argument('--trust-checkpoint', action='store_true', help='read a pickle with classes of its own; it can run code')
    parser.add_argument('--debug', action='store_true', help='show the trace behind an error')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    from mmexport.cli.audit import audit
    from mmexport.cli.export import guarded
    return guarded(lambda: audit(args), args.debug)


if __name__ == '__main__':
    sys.exit(main())
