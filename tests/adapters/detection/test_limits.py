"""Check what is said where a picture may have more rows than a file gives, and that a head's own decisions are not taken for mmdet's."""
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from mmexport import Exporter
from mmexport.adapters import build_adapter
from mmexport.checker.kinds.detections import compare_detections
from mmexport.errors import UnsupportedModelError
from mmexport.inputs.synthetic import picture
from mmexport.verification.test_step import run_test_step_on
from tests.detectors import seeded_detector, tiny_detector

pytestmark = pytest.mark.xdist_group('dense')


def changed(name: str, part: str, **settings: Any) -> Any:
    model: Any = copy.deepcopy(seeded_detector(name))
    getattr(model, part).test_cfg.update(settings)
    return model


@torch.no_grad()
def share_that_differs(model: Any, adapter: Any = None) -> float:
    """Return the share of rows in which ``test_step`` and the adapter differ."""
    adapter = adapter or build_adapter(model)
    image = picture((2, 3, 128, 160), 3, adapter)
    raw, _ = adapter.run_with_evidence(image)
    expected = dict(zip([spec.name for spec in adapter.specs], adapter.final(raw, image), strict=True))
    result = compare_detections(expected, adapter.read(run_test_step_on(adapter, image)), adapter.evidence(raw, image, {}), 1e-5)
    assert result.get('problem') is None, result
    return float(result['beyond'])


@pytest.mark.parametrize(('name', 'part'), [('faster_rcnn', 'roi_head'), ('faster_rcnn', 'rpn_head'), ('rpn', 'bbox_head')])
def test_an_open_number_of_rows_is_refused(name: str, part: str) -> None:
    with pytest.raises(UnsupportedModelError, match='max_per_img is -1, and a file gives as many rows of every picture: set it'):
        build_adapter(changed(name, part, max_per_img=-1))


@pytest.mark.parametrize(('name', 'part'), [('rtmdet_ins', 'bbox_head'), ('condinst', 'bbox_head'), ('paa', 'bbox_head')])
def test_a_limit_that_drops_the_last_box_is_refused(name: str, part: str) -> None:
    with pytest.raises(UnsupportedModelError, match='max_per_img is -1, with which mmdet drops the last box of each picture'):
        build_adapter(changed(name, part, max_per_img=-1))


@pytest.mark.parametrize(('name', 'part', 'queries', 'rows'), [
    ('detr', 'bbox_head', 100, 100), ('dino', 'bbox_head', 100, 1200), ('sparse_rcnn', 'roi_head', 100, 1200)])
def test_more_rows_than_queries_give_are_refused(name: str, part: str, queries: int, rows: int) -> None:
    build_adapter(changed(name, part, max_per_img=rows))
    with pytest.raises(UnsupportedModelError, match=f'max_per_img is {rows + 1}, and {queries} queries give {rows} rows: mmdet fails'):
        build_adapter(changed(name, part, max_per_img=rows + 1))


def test_own_code_is_named() -> None:
    """It may do what mmdet does, and a file is compared with what it does."""
    model = changed('retinanet', 'bbox_head')

    class Mine(type(model.bbox_head)):  # type: ignore[misc]
        def predict(self, *args: Any, **kwargs: Any) -> Any:
            return [rows[rows.bboxes[:, 0] > 20] for rows in super().predict(*args, **kwargs)]

    class Coder(type(model.bbox_head.bbox_coder)):  # type: ignore[misc]
        def decode(self, *args: Any, **kwargs: Any) -> Any:
            return super().decode(*args, **kwargs)

    model.bbox_head.bbox_coder.__class__ = Coder
    coder, = build_adapter(model).remarks()
    assert coder.endswith('Coder.decode is run without max_shape, and the boxes end at the border of the picture afterwards')
    assert share_that_differs(model) == 0
    class Fewer(type(model)):  # type: ignore[misc]
        def add_pred_to_datasample(self, samples: Any, rows: Any) -> Any:
            return super().add_pred_to_datasample(samples, [each[:40] for each in rows])

    model.bbox_head.__class__, model.__class__ = Mine, Fewer
    fewer, predict, _ = build_adapter(model).remarks()
    assert 'Fewer.add_pred_to_datasample is not run in the file' in fewer
    assert 'Mine.predict is not run in the file' in predict
    assert share_that_differs(model) > 0
    assert build_adapter(model, outputs='raw').remarks() == ()


def test_a_class_that_a_head_masks_sets_no_scale() -> None:
    """Its logits of -1e9 made eager unsure of all rows: the tolerance of a logit is a share of the largest one."""
    model = changed('retinanet', 'bbox_head')

    class Masked(type(model.bbox_head)):  # type: ignore[misc]
        def forward_single(self, x: Any) -> Any:
            scores, boxes = super().forward_single(x)
            return scores.unflatten(1, (-1, self.cls_out_channels)).index_fill(2, torch.tensor([3]), -1e9).flatten(1, 2), boxes

    model.bbox_head.__class__ = Masked
    assert share_that_differs(model) == 0
    for name in ('faster_rcnn', 'detr'):
        model = changed(name, 'bbox_head' if name == 'detr' else 'roi_head')
        layer = model.bbox_head.fc_cls if name == 'detr' else model.roi_head.bbox_head.fc_cls
        with torch.no_grad():
            layer.bias[3] = -1e4
        assert share_that_differs(model) == 0


def test_a_cut_that_no_picture_reached_is_told() -> None:
    model = changed('atss', 'bbox_head', score_thr=0.4, max_per_img=100)
    adapter = build_adapter(model)
    assert share_that_differs(model, adapter) == 0 and 0 < adapter.most < 100  # type: ignore[attr-defined]
    remark, = adapter.remarks()
    assert remark.endswith('detections: what the file does with more than max_per_img=100 was not seen')


def test_a_least_size_is_read_as_mmdet_reads_it() -> None:
    """YOLOX's head does not; others compare boxes of the original picture, whose scale a file does not know."""
    model = changed('yolox', 'bbox_head', min_bbox_size=30)
    assert share_that_differs(model) == 0 and not any('min_bbox_size' in line for line in build_adapter(model).remarks())
    remark, = build_adapter(changed('retinanet', 'bbox_head', min_bbox_size=16)).remarks()
    assert remark.startswith('test_cfg.min_bbox_size=16 is in pixels of the input here')
    assert build_adapter(changed('retinanet', 'bbox_head', min_bbox_size=16), outputs='raw').remarks() == ()


@pytest.mark.parametrize('name', ['faster_rcnn', 'sparse_rcnn', 'detr', 'rpn', 'rtmdet_ins', 'paa'])
def test_models_whose_heads_have_no_such_settings_have_no_remarks(name: str) -> None:
    """Every export asks for them."""
    assert build_adapter(seeded_detector(name)).remarks() == ()


def test_a_limit_of_the_suppression_is_one() -> None:
    assert share_that_differs(changed('faster_rcnn', 'roi_head', max_per_img=-1, nms=dict(type='nms', iou_threshold=0.5, max_num=30))) == 0


def test_raw_outputs_of_a_head_without_settings_have_no_remarks() -> None:
    model: Any = copy.deepcopy(seeded_detector('retinanet'))
    model.bbox_head.test_cfg = {}
    assert build_adapter(model, outputs='raw').remarks() == ()


@pytest.mark.parametrize(('limit', 'most'), [(None, 300), (3, 3), (1000, 1000)])
def test_rows_that_yolox_gives_beyond_the_limit_are_told(limit: int | None, most: int) -> None:
    model = changed('yolox', 'bbox_head', **({} if limit is None else dict(max_per_img=limit)))
    adapter = build_adapter(model)
    assert share_that_differs(model, adapter) == 0
    lines = [line for line in adapter.remarks() if line.startswith('mmdet gives up to')]
    assert adapter.notes()['rows']['most'] == most
    assert bool(lines) is (most < 400)
    assert all(f'and the file the best {most}, which were compared' in line for line in lines)


@pytest.mark.parametrize(('name', 'part'), [('faster_rcnn', 'rpn_head'), ('rpn', 'bbox_head')])
def test_proposals_have_no_threshold_of_the_score(name: str, part: str) -> None:
    assert share_that_differs(changed(name, part, score_thr=0.5)) == 0


def test_a_predict_of_a_users_own_is_refused_and_its_raw_outputs_are_not() -> None:
    model: Any = copy.deepcopy(seeded_detector('detr'))

    class Head(type(model.bbox_head)):  # type: ignore[misc]
        def predict(self, *args: Any, **kwargs: Any) -> Any:
            results = super().predict(*args, **kwargs)
            for each in results:
                each.scores = each.scores / 2
            return results

    image = torch.rand(1, 3, 128, 160)
    with torch.no_grad():
        expected = build_adapter(model, outputs='raw').raw(image)
        model.bbox_head.__class__ = Head
        actual = build_adapter(model, outputs='raw').raw(image)
    assert all(map(torch.equal, expected, actual))
    with pytest.raises(UnsupportedModelError, match='Head decides by a predict of Head, which mmexport does not know: use --outputs raw'):
        build_adapter(model)


@pytest.mark.slow
def test_nothing_is_diagnosed_where_eager_is_unsure(tmp_path: Path) -> None:
    """Scores that are all 1.0 have no order; whatever is compared then differs, and no patch is at fault."""
    model: Any = copy.deepcopy(seeded_detector('retinanet'))
    with torch.no_grad():
        model.bbox_head.retina_cls.bias += 60
    verify = dict(shapes=[(161, 97)], noises=1, batch=2)
    report, = Exporter(tiny_detector('retinanet', backends=['torchscript'], verify=verify), None, tmp_path, model=model).run()
    assert report.passed is False
    assert any('eager is unsure of' in reason for reason in report.reasons), report.reasons
    assert report.diagnoses == ()
