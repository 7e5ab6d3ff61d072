"""Make faults in the lowering of small detectors, in every format, and record what the check says of the files.

    python benchmarks/detector_faults.py --out benchmarks/results/detector_faults.json
"""
from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault('OMP_NUM_THREADS', '1')

from benchmarks.common import COMMIT, ROOT, quiet, write  # noqa: E402

FORMATS = ('torchscript', 'onnx', 'torch_export', 'openvino')


def main() -> int:
    args = parse()
    quiet()
    from tests.adapters.detection.faults import FAULTS, exported_with
    rows: list[dict[str, Any]] = json.loads(args.out.read_text())['rows'] if args.out.is_file() else []
    known = {(row['fault'], row['format']) for row in rows}
    for name in args.names or FAULTS:
        for kind in args.formats:
            if (name, kind) in known:
                continue
            started = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                report = exported_with(name, kind, Path(folder))
            rows.append(dict(fault=name, detector=FAULTS[name].detector, format=kind, caught=report.passed is False,
                             reason=report.reasons[0][:200] if report.reasons else '', commit=COMMIT,
                             seconds=round(time.perf_counter() - started)))
            print(json.dumps(rows[-1]), flush=True)
            write(args.out, rows)
    return 0 if all(row['caught'] for row in rows) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--names', nargs='*', help='faults (all)')
    parser.add_argument('--formats', nargs='*', default=FORMATS)
    parser.add_argument('--out', type=Path, default=ROOT / 'benchmarks' / 'results' / 'detector_faults.json')
    return parser.parse_args()


if __name__ == '__main__':
    sys.exit(main())
