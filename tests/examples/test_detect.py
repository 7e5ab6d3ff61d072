"""Test the example in Python on trained detectors: from a picture to boxes as mmdet's own inference finds them."""
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.scenes import objects
from benchmarks.train_detectors import CONFIGS
from mmexport.cli.main import run
from mmexport.model.build import load_model
from mmexport.model.config import load_config
from tests.tools.test_tools import ENV, ROOT

# One worker runs them: an export is used twice.
pytestmark = pytest.mark.xdist_group('detect')

SCRIPT = ROOT / 'examples' / 'detect.py'
# Another size and another aspect than the model was trained with.
HEIGHT, WIDTH = 150, 200
KEEP_RATIO = """
_base_ = '{base}'
test_pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(192, 128), keep_ratio=True),
                 dict(type='Pad', size=(192, 128), pad_val=dict(img=(114, 114, 114))),
                 dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))]
test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
export = dict(inputs=dict(shape=(128, 192), normalize=True), backends=['ONNX'])
"""
DIVISOR = """
_base_ = '{base}'
model = dict(data_preprocessor=dict(pad_size_divisor=32))
test_pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(180, 120), keep_ratio=True),
                 dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))]
test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
export = dict(inputs=dict(shape=(128, 160), img_shape=True), outputs=dict(masks='{masks}'))
"""
CASES = {'keep_ratio': ('rtmdet_shapes', KEEP_RATIO), 'divisor': ('mask_rcnn_shapes', DIVISOR.replace('{masks}', 'crop')),
         'pasted': ('mask_rcnn_shapes', DIVISOR.replace('{masks}', 'paste'))}


def eager_rows(config: Path, checkpoint: Path, picture: Any) -> dict[str, Any]:
    import mmdet.datasets  # noqa: F401 - registers PackDetInputs
    from mmdet.apis import inference_detector
    from mmengine.registry import DefaultScope
    model, _ = load_model(load_config(config), str(checkpoint))
    model.cfg = load_config(config)
    with DefaultScope.overwrite_default_scope('mmdet'):
        rows = inference_detector(model, picture).pred_instances
    return {name: rows[key].numpy() for name, key in dict(boxes='bboxes', scores='scores', labels='labels', masks='masks').items()
            if key in rows}


@pytest.fixture(scope='module')
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """Return what exports a case once, and gives its folder and its config. Eager is compared here, so that the check is left out."""
    root = tmp_path_factory.mktemp('made')

    @cache
    def make(case: str) -> tuple[Path, Path]:
        name, text = CASES[case]
        config = root / f'{case}.py'
        config.write_text(text.replace('{base}', str(CONFIGS / f'{name}.py')))
        assert run(['export', str(config), str(CONFIGS / f'{name}.pth'), '--work-dir', str(root / case), '--quiet', '--no-verify']) == 0
        return next(path.parent for path in (root / case).glob('*/manifest.json')), config

    return make


@pytest.mark.parametrize('case', CASES)
def test_it_finds_what_mmdet_finds(case: str, made: Callable[[str], tuple[Path, Path]]) -> None:
    from examples.detect import found, loaded
    folder, config = made(case)
    manifest = json.loads((folder / 'manifest.json').read_text())
    picture = np.ascontiguousarray(objects(900_100, HEIGHT, WIDTH)[0])
    rows = found(picture, manifest, loaded(folder, manifest))
    expected = eager_rows(config, CONFIGS / f'{CASES[case][0]}.pth', picture)
    sure = expected['scores'] > 0.3
    count = int(sure.sum())
    assert count >= 3
    assert (rows['scores'] > 0.3).sum() == count
    np.testing.assert_array_equal(rows['labels'][:count], expected['labels'][sure])
    np.testing.assert_allclose(rows['boxes'][:count], expected['boxes'][sure], atol=2e-2)
    np.testing.assert_allclose(rows['scores'][:count], expected['scores'][sure], atol=1e-3)
    if 'masks' in expected:
        assert rows['masks'].shape[1:] == (HEIGHT, WIDTH)
        both = (rows['masks'][:count] & expected['masks'][sure]).sum((1, 2)) / (rows['masks'][:count] | expected['masks'][sure]).sum((1, 2))
        # Masks pasted in the file are enlarged after they were decided.
        assert both.min() > (0.9 if case == 'pasted' else 0.999), both


def test_the_command_prints_and_draws(made: Callable[[str], tuple[Path, Path]], tmp_path: Path) -> None:
    import cv2
    picture = np.ascontiguousarray(objects(900_100, HEIGHT, WIDTH)[0])
    cv2.imwrite(str(tmp_path / 'picture.png'), picture)
    command = [sys.executable, str(SCRIPT), str(made('keep_ratio')[0]), str(tmp_path / 'picture.png')]
    done = subprocess.run([*command, '--out', str(tmp_path / 'found.png')], capture_output=True, text=True, env=ENV, check=False)
    assert done.returncode == 0, done.stderr
    assert any(line.startswith(('disc  0.', 'square  0.', 'bar  0.')) for line in done.stdout.splitlines()), done.stdout
    assert (cv2.imread(str(tmp_path / 'found.png')) != picture).any()
    wrong = subprocess.run([*command[:-1], str(SCRIPT)], capture_output=True, text=True, env=ENV, check=False)
    assert wrong.returncode == 1 and 'is not a picture that OpenCV reads' in wrong.stderr
