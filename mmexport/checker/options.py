"""Parse the program's options before torch is imported, so that ``--help`` needs no torch."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='verify', description='Check a lowered file against its samples, with torch and numpy alone.')
    parser.add_argument('folder', type=Path, help='holds the file, manifest.json and samples.npz')
    parser.add_argument('--samples', type=Path, help='another samples file')
    parser.add_argument('--device', default='cpu', help='where it runs: cpu, cuda, cuda:N (cpu)')
    parser.add_argument('--raw', type=Path, help=argparse.SUPPRESS)
    parser.add_argument('--trust', action='store_true',
                        help='load a file that can run code of its author: torch.export, AOTInductor, TensorRT')
    parser.add_argument('--runner', type=Path, help='the runner.py of a format that your project registers')
    parser.add_argument('--kind', nargs='+', default=[], metavar='NAME=FILE', help='the module of a kind of output that your project has')
    parser.add_argument('--verbose', action='store_true', help='show all rows, not only those that fail')
    parser.add_argument('--out', type=Path, help='write the findings as JSON instead of a table')
    return parser.parse_args(argv)
