"""Compare how long ``--help`` of a program of two commands takes with click, rich-click and typer, in turn.

    python benchmarks/cli_start.py --out benchmarks/results/cli_start.json

It needs all three: ``pip install click rich-click typer`` in an environment of its own, named by --python.
"""
from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from common import write

CLICK = '''import {module} as click
@click.group()
def main(): pass
@main.command()
@click.option('--size', help='A size.')
def one(size): pass
@main.command()
def two(): pass
main()
'''
TYPER = '''import typer
app = typer.Typer()
@app.command()
def one(size: str = typer.Option('', help='A size.')): pass
@app.command()
def two(): pass
app()
'''
PROGRAMS = {'click': CLICK.format(module='click'), 'rich-click': CLICK.format(module='rich_click'), 'typer': TYPER}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--python', default=sys.executable)
    parser.add_argument('--rounds', type=int, default=20)
    parser.add_argument('--out', type=Path, required=True)
    args = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PROGRAMS.items():
            (Path(folder) / f'{name}_program.py').write_text(text)
        for _ in range(args.rounds):
            for name, times in seconds.items():
                started = perf_counter()
                subprocess.run([args.python, str(Path(folder) / f'{name}_program.py'), '--help'], capture_output=True, check=True)
                times.append(perf_counter() - started)
    packages = subprocess.run([args.python, '-m', 'pip', 'list', '--format=freeze'], capture_output=True, text=True, check=True).stdout
    rows = [dict(library=name, seconds=statistics.median(times), over_click=statistics.median(
        one / other for one, other in zip(times, seconds['click'], strict=True))) for name, times in seconds.items()]
    for row in rows:
        print(f"{row['library']:<12}{row['seconds']:.3f} s  {row['over_click']:.2f} of click")
    expected = {line.split('==')[0].lower(): line.split('==')[1] for line in packages.splitlines() if '==' in line}
    write(args.out, rows, rounds=args.rounds, libraries={name: expected.get(name) for name in (*PROGRAMS, 'rich')})


if __name__ == '__main__':
    main()
