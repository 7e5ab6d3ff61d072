"""Test the Python of the page about detectors: mmdet's head decodes the raw maps of a file as it decodes eager's."""
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.scenes import objects
from benchmarks.train_detectors import CONFIGS, predicted
from mmexport.cli.main import run
from mmexport.model.build import load_model
from mmexport.model.config import load_config
from tests.deployed import network_input

PAGE = Path(__file__).parents[3] / 'docs' / 'detectors.md'


def test_raw_maps_are_decoded_as_the_page_says(tmp_path: Path) -> None:
    config, checkpoint = CONFIGS / 'rtmdet_shapes.py', CONFIGS / 'rtmdet_shapes.pth'
    assert run(['export', str(config), str(checkpoint), '--outputs', 'raw', '--work-dir', str(tmp_path), '--quiet', '--no-verify']) == 0
    model, _ = load_model(load_config(config), str(checkpoint))
    folder, picture = tmp_path / 'torchscript', objects(900_200, 128, 192)[0]
    image = network_input(picture, json.loads((folder / 'manifest.json').read_text()))[None]
    code, = re.findall(r'<!-- run python -->\n```python\n(.*?)```', PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = dict(json=json, torch=torch, folder=folder, image=image, model=model)
    with torch.no_grad():
        exec(code, names)
    rows, = names['rows']
    expected = predicted(model, picture)
    assert len(expected['scores']) > 3
    np.testing.assert_allclose(rows.scores.numpy(), expected['scores'], atol=1e-4)
    np.testing.assert_allclose(rows.bboxes.numpy(), expected['boxes'], atol=1e-2)
