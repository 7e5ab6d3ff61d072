"""Write FOLDER/samples.pt, which LibTorch reads alone, from samples.npz: python examples/cpp/samples.py FOLDER.

The program compares values place by place, so instance rows of close class scores, which may stand in another order, can read as
different there; mmexport's own checker matches rows. Raw outputs have no such order.
"""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmexport.checker.comparison import SLACK
from mmexport.checker.samples import Sample, read_samples

# Labels and masks may differ where eager itself was unsure; a program without the evidence for that allows one in a thousand.
LABELS = 1e-3


def main() -> None:
    folder = Path(sys.argv[1])
    manifest = json.loads((folder / 'manifest.json').read_text())
    samples, extra = read_samples(folder / 'samples.npz')
    torch.save(dict(tolerance=float(extra['tolerance']), samples=[plain(sample, manifest, extra['floors']) for sample in samples]),
               folder / 'samples.pt')


def plain(sample: Sample, manifest: dict[str, Any], floors: dict[str, float]) -> dict[str, Any]:
    """One sample as a dict of what LibTorch knows: str, tensors, lists of them and of floats, in the order of the outputs."""
    names = [str(spec['name']) for spec in manifest['outputs']]
    return dict(name=sample.name, image=sample.image, expected=[sample.expected[name] for name in names],
                allowed=[allowed(sample.expected[name], floors.get(name, floors.get('instances', 0.0))) for name in names])


def allowed(expected: torch.Tensor, floor: float) -> float:
    """The share of values that may be off: what the rules of mmexport give a model with that floor."""
    slack = SLACK if floor > 0 and expected.is_floating_point() else 0.0 if expected.is_floating_point() else LABELS
    return float(floor) + slack


if __name__ == '__main__':
    main()
