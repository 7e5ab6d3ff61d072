"""Train small detectors on drawn scenes: python benchmarks/train_detectors.py [NAME ...] --out tests/data/detectors.

The configs lie beside the checkpoints. Validation scenes have seeds that training never draws; COCO mAP before and after, of boxes and of
masks if there are any, is printed and written to ``scores.json``. Regions are cut by the patch of RoIAlign: the stand-in for mmcv's kernel
has no gradient.
"""
from __future__ import annotations

import contextlib
import copy
import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.scenes import objects  # noqa: E402
from benchmarks.training import as_tensor, train_named  # noqa: E402

CONFIGS = Path(__file__).resolve().parents[1] / 'tests' / 'data' / 'detectors'
STEPS = {'rtmdet_shapes': 900, 'mask_rcnn_shapes': 1200}
BATCH, RATE, CLASSES = 8, 2e-3, 3
VALIDATION = range(900_000, 900_020)
SIZE = (128, 192)


def train(name: str, checkpoint: Path) -> dict[str, Any]:
    """Train the model of ``NAME.py`` and write it to `checkpoint`, with the mAP on validation scenes before and after."""
    from mmexport.model.build import build_model
    from mmexport.model.config import load_config
    from mmexport.model.dataset_meta import dataset_meta
    torch.manual_seed(0)
    cfg = load_config(CONFIGS / f'{name}.py')
    model = build_model(cfg)
    model.init_weights()  # type: ignore[operator]
    before = mean_average_precision(lambda picture: predicted(model, picture))
    started = time.perf_counter()
    fit(model, name, STEPS[name])
    after = mean_average_precision(lambda picture: predicted(model, picture))
    torch.save(dict(state_dict=model.state_dict(), meta=dict(dataset_meta=dataset_meta(cfg, {}))), checkpoint)
    for kind, value in after.items():
        print(f'{name}: {kind} mAP {before[kind]:.1f} -> {value:.1f} on {len(VALIDATION)} validation scenes, {STEPS[name]} steps in '
              f'{time.perf_counter() - started:.0f} s, {checkpoint.stat().st_size / 1e6:.2f} MB', flush=True)
    return dict(before=before, after=after, steps=STEPS[name], torch=torch.__version__,
                command=f'python benchmarks/train_detectors.py {name}')


def fit(model: nn.Module, name: str, steps: int, rate: float = RATE, batch: int = BATCH) -> None:
    """Train `model` on drawn scenes, other ones in each step."""
    from mmexport.patching import patched
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=5e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps)
    started = time.perf_counter()
    for step in range(steps):
        model.train()
        with patched(['RoIAlign']):
            loss = _loss(model, [objects(step * batch + index, *SIZE) for index in range(batch)])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 35)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f'{name}: step {step}, loss {float(loss):.4f}, {time.perf_counter() - started:.0f} s', file=sys.stderr, flush=True)
    model.eval()


def predicted(model: nn.Module, picture: Any) -> dict[str, Any]:
    """Return boxes, scores, labels, and masks if any, that ``test_step`` gives for a picture (H, W, 3), uint8, BGR."""
    from mmdet.structures import DetDataSample
    size = picture.shape[:2]
    sample = DetDataSample(metainfo=dict(img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0)))
    with torch.no_grad():
        rows = model.test_step(dict(inputs=[as_tensor(picture)], data_samples=[sample]))[0].pred_instances  # type: ignore[operator]
    return {name: rows[key].numpy() for name, key in dict(boxes='bboxes', scores='scores', labels='labels', masks='masks').items()
            if key in rows}


def mean_average_precision(predict: Callable[[Any], dict[str, Any]]) -> dict[str, float]:
    """Return COCO's mAP over overlaps of 0.5 to 0.95, in percent, of `predict` on the validation scenes: `bbox`, and `segm` of masks."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval
    truth: dict[str, list[dict[str, Any]]] = dict(images=[], annotations=[], categories=[dict(id=number) for number in range(CLASSES)])
    rows, kinds = [], ['bbox']
    for number, seed in enumerate(VALIDATION):
        picture, boxes, labels, masks = objects(seed, *SIZE)
        truth['images'].append(dict(id=number, height=SIZE[0], width=SIZE[1]))
        for box, label, mask in zip(boxes, labels, masks, strict=True):
            truth['annotations'].append(dict(id=len(truth['annotations']) + 1, image_id=number, category_id=int(label), iscrowd=0,
                                             bbox=_as_coco(box), area=float(mask.sum()), segmentation=_encoded(mask)))
        answer = predict(picture)
        kinds = ['bbox', 'segm'] if 'masks' in answer else kinds
        rows += [dict(image_id=number, category_id=int(label), bbox=_as_coco(box), score=float(score),
                      **(dict(segmentation=_encoded(answer['masks'][row])) if 'masks' in answer else {}))
                 for row, (box, score, label) in enumerate(zip(answer['boxes'], answer['scores'], answer['labels'], strict=True))]
    if not rows:
        return dict.fromkeys(kinds, 0.0)
    means = {}
    with contextlib.redirect_stdout(io.StringIO()):
        expected = COCO()
        expected.dataset = {**truth, 'info': {}}
        expected.createIndex()
        for kind in kinds:
            evaluation = COCOeval(expected, expected.loadRes(copy.deepcopy(rows)), kind)
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
            means[kind] = round(float(100 * evaluation.stats[0]), 2)
    return means


def _encoded(mask: Any) -> Any:
    from pycocotools.mask import encode
    return encode(np.asfortranarray(mask.astype(np.uint8)))


def _as_coco(box: Any) -> list[float]:
    return [float(box[0]), float(box[1]), float(box[2] - box[0]), float(box[3] - box[1])]


def _loss(model: nn.Module, scenes: list[Any]) -> Tensor:
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks
    from mmengine.structures import InstanceData
    # RTMDet's assigner takes masks for tensors where it is given any, so they go, as upstream's do, to models of masks alone.
    of_masks = model.with_mask or hasattr(getattr(model, 'bbox_head', None), 'mask_head')
    samples = []
    for picture, boxes, labels, masks in scenes:
        size = picture.shape[:2]
        sample = DetDataSample(metainfo=dict(img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0)))
        sample.gt_instances = InstanceData(bboxes=torch.as_tensor(np.asarray(boxes)).float(), labels=torch.as_tensor(labels).long())
        if of_masks:
            sample.gt_instances.masks = BitmapMasks(masks, *size)
        samples.append(sample)
    data = model.data_preprocessor(dict(inputs=[as_tensor(scene[0]) for scene in scenes], data_samples=samples), True)  # type: ignore
    losses = model.loss(data['inputs'], data['data_samples'])  # type: ignore[operator]
    return sum(part for key, value in losses.items() if 'loss' in key  # type: ignore[return-value]
               for part in (value if isinstance(value, list) else [value]))


if __name__ == '__main__':
    sys.exit(train_named(__doc__, STEPS, CONFIGS, train))
