"""Test files with mmdeploy's names: they are verified, and a client that was written for mmdeploy's files reads them."""
from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from benchmarks.scenes import objects
from benchmarks.train_detectors import CONFIGS, VALIDATION, as_tensor, predicted
from mmexport import Exporter
from mmexport.adapters import build_adapter
from mmexport.adapters.detection.pasting import pasted
from mmexport.artifact import Artifact
from mmexport.checker.kinds import dets, dets_of_instances
from mmexport.cli.main import run
from mmexport.errors import ConfigError
from mmexport.inputs.synthetic import picture
from mmexport.model.build import load_model
from mmexport.model.config import export_section, load_config
from mmexport.verification.test_step import run_test_step_on
from tests.detectors import seeded_detector, tiny_detector
from tests.tiny import seeded, tiny

# One worker runs them: they share an export.
pytestmark = pytest.mark.xdist_group('mmdeploy_names')
MMDEPLOY = dict(names='mmdeploy')
SIZE = (128, 192)


def assert_same_boxes(boxes: Any, expected: Any) -> None:
    """Match boxes in any order: scores that rounding makes equal may trade places."""
    assert boxes.shape == expected.shape
    distance = np.abs(boxes[:, None] - np.asarray(expected)[None]).max(-1)
    assert distance[linear_sum_assignment(distance)].max(initial=0) < 2e-2


@pytest.fixture(scope='module')
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('detector')
    config = CONFIGS / 'rtmdet_shapes.py'
    assert run(['export', str(config), str(config.with_suffix('.pth')), '--work-dir', str(folder), '--quiet', '--backend', 'onnx',
                'torchscript', '--cfg-options', 'export.outputs.names=mmdeploy']) == 0
    return folder


def test_detections_are_dets_and_labels(detector: Path) -> None:
    session = onnxruntime.InferenceSession(str(detector / 'onnx' / 'model.onnx'), providers=['CPUExecutionProvider'])
    assert [value.name for value in session.get_inputs()] == ['input']
    assert [value.name for value in session.get_outputs()] == ['dets', 'labels']
    boxes, labels = session.run(None, {'input': np.zeros((2, 3, *SIZE), np.float32)})
    assert boxes.shape[::2] == (2, 5) and labels.shape == boxes.shape[:2]


def test_rtmlib_finds_the_boxes_of_the_model(detector: Path) -> None:
    """It pads, normalises, and drops scores below its threshold."""
    rtmlib = pytest.importorskip('rtmlib', reason='rtmlib is not installed')
    cfg = load_config(CONFIGS / 'rtmdet_shapes.py')
    model, _ = load_model(cfg, str(CONFIGS / 'rtmdet_shapes.pth'))
    rule = cfg.model.data_preprocessor
    with contextlib.redirect_stdout(io.StringIO()):
        client = rtmlib.RTMDet(str(detector / 'onnx' / 'model.onnx'), SIZE, mean=tuple(rule.mean), std=tuple(rule.std), score_thr=0.3)
    count = 0
    for seed in VALIDATION:
        picture = objects(seed, *SIZE)[0]
        expected = predicted(model, picture)
        boxes = np.asarray(client(picture))
        assert_same_boxes(boxes, expected['boxes'][expected['scores'] > 0.3])
        count += len(boxes)
    assert count > 20


@pytest.mark.slow
def test_rtmlib_finds_the_boxes_of_a_yolox(tmp_path: Path) -> None:
    """Pictures are not normalised; the client's own threshold is 0.3."""
    rtmlib = pytest.importorskip('rtmlib', reason='rtmlib is not installed')
    model = seeded_detector('yolox')
    report, = Exporter(tiny_detector('yolox', backends=['onnx'], outputs=MMDEPLOY), None, tmp_path, model=model, diagnose=False).run()
    assert report.passed, report.reasons
    with contextlib.redirect_stdout(io.StringIO()):
        client = rtmlib.YOLOX(str(report.artifacts[0].file), SIZE)
    count = 0
    for seed in VALIDATION[:5]:
        picture = objects(seed, *SIZE)[0]
        expected = predicted(model, picture)
        boxes = np.asarray(client(picture))
        # mmdet's head has no limit, and the file gives the best 300.
        assert_same_boxes(boxes, expected['boxes'][expected['scores'] > 0.3][:300])
        count += len(boxes)
    assert count > 5


@pytest.mark.parametrize('backend', ['torchscript', 'onnx'])
def test_a_label_map_is_output(backend: str, tmp_path: Path) -> None:
    report, = Exporter(tiny('fcn', backends=[backend], outputs=MMDEPLOY), model=seeded('fcn'), work_dir=tmp_path, diagnose=False).run()
    assert report.passed, report.reasons
    manifest = report.artifacts[0].manifest
    assert [value['name'] for value in manifest['inputs']] == ['input']
    output, = (value for value in manifest['outputs'] if value['kind'] == 'channel_labels')
    assert (output['name'], output['dtype'], list(output['axes'])) == ('output', 'int64', ['batch', 'one', 'height', 'width'])
    assert sum(check.passed is True for check in report.pipelines) > 3


def test_a_wrong_row_is_found() -> None:
    rows = torch.rand(1, 20, 5).sort(dim=1).values * torch.tensor([100, 100, 100, 100, 1])
    outputs = dict(dets=torch.cat([rows[..., :2], rows[..., :2] + 30, rows[..., 4:]], dim=2), labels=torch.randint(0, 3, (1, 20)))
    outputs['dets'][:, 15:], outputs['labels'][:, 15:] = 0, 0

    def beyond(**changed: Any) -> float:
        return float(dets.compare(('dets', 'labels'), outputs, {**outputs, **changed}, {}, 1e-4, None)['beyond'])

    assert beyond() == 0
    assert beyond(labels=(outputs['labels'] + 1) % 3 * (outputs['dets'][..., 4] > 0)) > 0
    assert beyond(dets=outputs['dets'] * torch.tensor([1.05, 1, 1.05, 1, 1])) > 0
    assert list(dets.classes('labels', outputs)) == list(outputs['labels'][0, :15])  # type: ignore[arg-type]


@pytest.mark.parametrize(('outputs', 'words'), [
    (dict(names='mmdeply'), 'did you mean mmdeploy'),
    (dict(name='mmdeploy'), 'did you mean names'),
    (dict(names='mmdeploy', level='raw'), 'final detections, label maps and mask')])
def test_what_does_not_fit_is_refused(outputs: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        cfg = tiny('fcn', outputs=outputs)
        export_section(cfg)
        Exporter(cfg, model=seeded('fcn'), work_dir=tmp_path).run()


def test_logits_of_a_mask_classifier_are_fused_outside(tmp_path: Path) -> None:
    """mmdet's own fusion head, given what the file says, finds the segments of the model."""
    model = seeded('mask2former_r50')
    cfg = tiny('mask2former_r50', backends=['onnx'], outputs=MMDEPLOY, verify=dict(shapes=[(96, 192)], noises=1, batch=2))
    report, = Exporter(cfg, model=model, work_dir=tmp_path, diagnose=False).run()
    assert report.passed, report.reasons
    session = onnxruntime.InferenceSession(str(tmp_path / 'onnx' / 'model.onnx'), providers=['CPUExecutionProvider'])
    assert [value.name for value in session.get_inputs()] == ['input']
    assert [value.name for value in session.get_outputs()] == ['cls_logits', 'mask_logits']
    adapter = build_adapter(model)
    image = picture((2, 3, 80, 144), 5, adapter)
    logits, masks = (torch.from_numpy(value) for value in session.run(None, {'input': image.numpy()}))
    assert masks.shape[2:] == (80, 144)
    with torch.no_grad():
        fused = model.panoptic_fusion_head.predict(logits, masks, adapter.data_samples(image), rescale=False)  # type: ignore[operator, union-attr]
        expected = adapter.read(run_test_step_on(adapter, image))
    segments = torch.stack([each['pan_results'].sem_seg[0] for each in fused])
    assert len(segments.unique()) > 3 and float((segments != expected['panoptic']).float().mean()) < 1e-3
    for each, count, scores in zip(fused, expected['num'], expected['scores'], strict=True):
        found = each['ins_results'].scores
        assert len(found) == int(count)
        assert float((found.sort().values - scores[:int(count)].sort().values).abs().max()) < 1e-3


def test_raw_outputs_of_a_mask_classifier_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='raw outputs of panoptic/instance'):
        Exporter(tiny('mask2former_r50', outputs=dict(names='mmdeploy', level='raw')), model=seeded('mask2former_r50'),
                 work_dir=tmp_path).run()


@pytest.mark.parametrize('backend', ['torchscript', pytest.param('onnx', marks=pytest.mark.slow)])
def test_instances_by_location_are_dets_labels_and_masks(backend: str, tmp_path: Path) -> None:
    cfg = tiny_detector('solo', backends=[backend], outputs=MMDEPLOY, verify=dict(shapes=[(161, 97)], noises=1, batch=2))
    report, = Exporter(cfg, None, tmp_path, model=seeded_detector('solo'), diagnose=False).run()
    assert report.passed, report.reasons
    outputs = [(spec['name'], spec['dtype']) for spec in report.artifacts[0].manifest['outputs']]
    assert outputs == [('dets', 'float32'), ('labels', 'int64'), ('masks', 'uint8')]
    assert sum(check.passed is True for check in report.pipelines) > 1


def test_wrong_instances_are_found() -> None:
    adapter = build_adapter(seeded_detector('solo'), names='mmdeploy')
    image = picture((2, 3, 128, 160), 3, adapter)
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(image)
        outputs = dict(zip([spec.name for spec in adapter.specs], adapter.decide(raw, image), strict=True))
        evidence = adapter.evidence(raw, image, recorded)

    def beyond(**changed: Any) -> float:
        result = dets_of_instances.compare([*outputs], outputs, {**outputs, **changed}, evidence, 1e-4, None)
        return 1.0 if 'problem' in result else float(result['beyond'])

    there = outputs['dets'][..., 4] > 0
    assert int(there.sum()) > 20 and beyond() == 0
    assert beyond(labels=(outputs['labels'] + 1) % 12 * there) > 0
    assert beyond(dets=outputs['dets'] * torch.tensor([1.05, 1, 1.05, 1, 1])) > 0
    assert beyond(dets=outputs['dets'] * torch.tensor([1, 1, 1, 1, 0.99])) > 0
    assert beyond(masks=outputs['masks'].roll(1, dims=1)) > 0


def session_of(file: Path) -> Callable[[Tensor], list[Tensor]]:
    session = onnxruntime.InferenceSession(str(file), providers=['CPUExecutionProvider'])
    assert [value.name for value in session.get_outputs()] == ['dets', 'labels', 'masks']
    return lambda image: [torch.from_numpy(value) for value in session.run(None, {'input': image.numpy()})]


@pytest.mark.slow
@pytest.mark.parametrize(('masks', 'backend'), [('crop', 'onnx'), ('paste', 'torchscript')])
def test_masks_are_those_of_the_model(masks: str, backend: str, tmp_path: Path) -> None:
    """As mmdeploy's own runtime reads them: probabilities that it pastes, or masks of the whole picture, compared with 0.5."""
    config = CONFIGS / 'mask_rcnn_shapes.py'
    assert run(['export', str(config), str(config.with_suffix('.pth')), '--work-dir', str(tmp_path), '--quiet', '--backend', backend,
                '--cfg-options', 'export.outputs.names=mmdeploy', f'export.outputs.masks={masks}']) == 0
    artifact = Artifact.read(tmp_path / backend)
    assert [value['name'] for value in artifact.manifest['outputs']] == ['dets', 'labels', 'masks']
    run_file = session_of(artifact.file) if backend == 'onnx' else torch.jit.load(str(artifact.file))
    model, _ = load_model(load_config(config), str(config.with_suffix('.pth')))
    count = 0
    for seed in VALIDATION[:5]:
        scene = objects(seed, *SIZE)[0]
        expected = predicted(model, scene)
        image = model.data_preprocessor(dict(inputs=[as_tensor(scene)]))['inputs']  # type: ignore[operator]
        rows, _, values = (value[0] for value in run_file(image))
        there = rows[:, 4] > 0.5
        boxes, values = rows[there, :4], values[there]
        if masks == 'crop':
            assert values.dtype == torch.float32 and 0 <= float(values.min()) and float(values.max()) <= 1
            values = pasted(values, boxes, *SIZE)
        one, other = values >= 0.5, torch.as_tensor(expected['masks'][expected['scores'] > 0.5])
        assert one.shape == other.shape
        assert int((one != other).sum()) <= 2 * len(one)
        count += len(one)
    assert count > 10
