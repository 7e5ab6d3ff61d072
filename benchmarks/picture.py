"""Draw the photograph, eager's labels, the exported file's labels and where they differ: docs/images/parity.png.

    python tools/make_checkpoint.py configs/mask2former_r50.py ckpt.pth
    python tools/export.py configs/mask2former_r50.py ckpt.pth --work-dir work_dirs/picture
    python benchmarks/picture.py work_dirs/picture/torchscript docs/images/parity.png
"""
from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from common import quiet

from mmexport.checker.files import load
from mmexport.checker.samples import read_samples
from mmexport.report.label_maps import colours

HEIGHT, GAP, BAR = 256, 6, 22
TITLES = ('photograph', 'unpatched eager', 'exported file', 'difference')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', type=Path, help='of one exported format, with samples.npz')
    parser.add_argument('out', type=Path)
    args = parser.parse_args()
    quiet()
    manifest = json.loads((args.folder / 'manifest.json').read_text())
    samples, _ = read_samples(args.folder / 'samples.npz')
    sample = next(sample for sample in samples if sample.name == 'photograph')
    run = load(args.folder, manifest, torch.device('cpu'))
    name = next(spec['name'] for spec in manifest['outputs'] if spec['kind'] in ('labels', 'panoptic'))
    position = [spec['name'] for spec in manifest['outputs']].index(name)
    expected = sample.expected[name][0].numpy()
    with torch.no_grad():
        actual = run(sample.image)[position][0].numpy()
    differs = np.where(expected != actual, 255, 0).astype(np.uint8)
    panels = [_photograph(sample.image[0], manifest['preprocessing']), colours(expected), colours(actual),
              np.repeat(differs[..., None], 3, axis=-1)]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(args.out), _joined(panels), [cv2.IMWRITE_PNG_COMPRESSION, 9])
    print(f'{args.out}: {(expected == actual).mean():.4%} of the pixels agree')


def _photograph(image: torch.Tensor, preprocessing: dict[str, Any]) -> np.ndarray:
    """Return the picture (H, W, 3) in BGR, 0 to 255, from the normalised image (3, H, W)."""
    mean, std = (torch.tensor(preprocessing[key]).view(3, 1, 1) for key in ('mean', 'std'))
    picture = (image * std + mean).clamp(0, 255).permute(1, 2, 0).numpy().astype(np.uint8)
    return picture[..., ::-1] if preprocessing['channel_order'].lower() == 'rgb' else picture


def _joined(panels: list[np.ndarray]) -> np.ndarray:
    """Return the panels side by side, each with its title above."""
    columns = []
    for title, panel in zip(TITLES, panels, strict=True):
        width = round(panel.shape[1] * HEIGHT / panel.shape[0])
        column = cv2.resize(np.ascontiguousarray(panel), (width, HEIGHT), interpolation=cv2.INTER_AREA if title == TITLES[0]
                            else cv2.INTER_NEAREST)
        bar = np.full((BAR, width, 3), 255, np.uint8)
        cv2.putText(bar, title, (4, 16), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (0, 0, 0), 1, cv2.LINE_AA)
        columns += [np.vstack([bar, column]), np.full((HEIGHT + BAR, GAP, 3), 255, np.uint8)]
    return np.hstack(columns[:-1])


if __name__ == '__main__':
    main()
