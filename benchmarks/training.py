"""Run the scripts that train small models: names on the command line, a checkpoint and scores for each."""
from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def train_named(doc: str | None, names: Iterable[str], configs: Path, train: Callable[[str, Path], dict[str, Any]]) -> int:
    """Train the models that the command line names, and write the scores of each as soon as they are there."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument('names', nargs='*', default=sorted(names))
    parser.add_argument('--out', type=Path, default=configs)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    place = args.out / 'scores.json'
    scores = json.loads(place.read_text()) if place.is_file() else {}
    for name in args.names:
        scores[name] = train(name, args.out / f'{name}.pth')
        place.write_text(json.dumps(scores, indent=2) + '\n')
    return 0


def as_tensor(picture: Any) -> Tensor:
    """Return a picture (H, W, C) as a data loader gives it (C, H, W)."""
    return torch.as_tensor(picture).permute(2, 0, 1).contiguous()
