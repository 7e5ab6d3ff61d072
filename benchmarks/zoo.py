"""Bring the rows of sweeps into the recorded zoo: python benchmarks/zoo.py SWEEP/zoo.json [...]

Of each config and format the newest row stays; docs/zoo.md is written anew from all of them, without the places where packages lay on
the machine that made a row.
"""
from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from common import ROOT, quiet

RECORDED, DOC = ROOT / 'benchmarks' / 'results' / 'zoo.json', ROOT / 'docs' / 'zoo.md'
INSTALLED = re.compile(r'/[^\s"\']*/(site-packages|mmexport)/')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('sweeps', nargs='*', type=Path, metavar='ZOO.json')
    parser.add_argument('--recorded', type=Path, default=RECORDED)
    parser.add_argument('--doc', type=Path, default=DOC)
    args = parser.parse_args()
    quiet()
    from mmexport.sweep.document import write
    from mmexport.sweep.store import Store
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / 'rows.sqlite', {})
        for place in (args.recorded, *args.sweeps):
            if place.is_file():
                # Rows of before the sweep ran the default command have no shape, and hold for another command.
                rows = [row for row in json.loads(INSTALLED.sub('', place.read_text())) if 'shape' in row]
                new = store.take(rows)
                print(f'{new} rows of {place.name}')
        rows = store.rows()
        store.close()
    for row in rows:
        row.pop('repro', None)
    write(rows, args.recorded, args.doc)
    return 0


if __name__ == '__main__':
    sys.exit(main())
