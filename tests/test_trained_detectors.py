"""Test detectors that were really trained: the default command passes, and the file has eager's COCO mAP of boxes and masks."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import mmexport
from benchmarks.train_detectors import CONFIGS, mean_average_precision, predicted
from mmexport.cli.main import run
from mmexport.model.build import load_model
from mmexport.model.config import load_config
from tests.deployed import network_input

SCORES = json.loads((CONFIGS / 'scores.json').read_text())


def rows_of(file: Path, manifest: dict[str, Any]) -> Any:
    """Do what a user of the folder does with a picture (H, W, 3): prepare it by the manifest, and take mmdet's results."""
    run, names = torch.jit.load(str(file)), [output['name'] for output in manifest['outputs']]

    def predict(picture: Any) -> dict[str, Any]:
        outputs = dict(zip(names, run(network_input(picture, manifest)[None]), strict=True))
        rows, = mmexport.instance_data(outputs, [dict(ori_shape=picture.shape[:2], scale_factor=(1.0, 1.0))])
        masks = dict(masks=rows.masks.numpy()) if 'masks' in rows else {}
        return dict(boxes=rows.bboxes.numpy(), scores=rows.scores.numpy(), labels=rows.labels.numpy(), **masks)

    return predict


@pytest.mark.usefixtures('real_checker')
@pytest.mark.parametrize('name', sorted(SCORES))
def test_default_command_passes_and_scores_as_eager(name: str, tmp_path: Path) -> None:
    config, checkpoint = CONFIGS / f'{name}.py', CONFIGS / f'{name}.pth'
    assert checkpoint.stat().st_size < 3e6
    assert all(after > SCORES[name]['before'][kind] + 30 for kind, after in SCORES[name]['after'].items())
    assert run(['export', str(config), str(checkpoint), '--work-dir', str(tmp_path), '--quiet']) == 0
    report = json.loads((tmp_path / 'report.json').read_text())
    assert report['passed'] is True
    artifact, = report['artifacts']
    assert artifact['result']['vacuous'] == {}
    if report['versions']['mmcv_ops'] == 'stand-in':
        # A time over that of plain kernels would say nothing.
        assert 'nms' in report['versions']['reference_kernels'] and artifact['over_eager'] is None
    assert all(row['passed'] for row in report['pipelines'] if not row['skipped'])
    # RTMDet's threshold of the score is 0.001: it finds something everywhere.
    assert ('nothing found' in report['inputs']) is (name == 'mask_rcnn_shapes')
    model, _ = load_model(load_config(config), str(checkpoint))
    eager = mean_average_precision(lambda picture: predicted(model, picture))
    manifest = json.loads((tmp_path / 'torchscript' / 'manifest.json').read_text())
    assert mean_average_precision(rows_of(tmp_path / 'torchscript' / 'model.pt', manifest)) == pytest.approx(eager, abs=0.1)
    assert eager == pytest.approx(SCORES[name]['after'], abs=0.5)
