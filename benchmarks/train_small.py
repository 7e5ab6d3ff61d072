"""Train three small segmentors on drawn scenes: python benchmarks/train_small.py [NAME ...] --out tests/data/trained.

Seeded weights do not show what trained ones do: a good model of rare objects finds nothing in a synthetic scene. The configs lie beside
the checkpoints. Validation scenes have seeds that training never draws; mIoU before and after is printed and written to ``scores.json``.
"""
from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.scenes import DRAWN, Scene  # noqa: E402
from benchmarks.training import as_tensor, train_named  # noqa: E402

CONFIGS = Path(__file__).resolve().parents[1] / 'tests' / 'data' / 'trained'
STEPS = {'nuclei_unet': 500, 'cracks_sigmoid': 400, 'shapes_slide': 700}
BATCH, RATE = 8, 2e-3
VALIDATION = range(900_000, 900_012)
# Larger than a window, so that a sliding model slides.
SIZE = (128, 192)


def train(name: str, checkpoint: Path) -> dict[str, Any]:
    """Train the model of ``NAME.py`` and write it to `checkpoint`, with the mIoU on validation scenes before and after."""
    from mmengine.config import Config

    from mmexport.model.build import build_model
    from mmexport.model.dataset_meta import dataset_meta
    torch.manual_seed(0)
    cfg = Config.fromfile(CONFIGS / f'{name}.py')
    model = build_model(cfg)
    model.init_weights()  # type: ignore[operator]
    before = miou(name, lambda picture: predicted(model, picture))
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, STEPS[name])
    started = time.perf_counter()
    for step in range(STEPS[name]):
        model.train()
        loss = _loss(model, [DRAWN[name](step * BATCH + index) for index in range(BATCH)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f'{name}: step {step}, loss {float(loss):.4f}', flush=True)
    model.eval()
    after = miou(name, lambda picture: predicted(model, picture))
    torch.save(dict(state_dict=model.state_dict(), meta=dict(dataset_meta=dataset_meta(cfg, {}))), checkpoint)
    print(f'{name}: mIoU {before:.1f} -> {after:.1f} on {len(VALIDATION)} validation scenes, {STEPS[name]} steps in '
          f'{time.perf_counter() - started:.0f} s, {checkpoint.stat().st_size / 1e6:.2f} MB', flush=True)
    return dict(before=round(before, 2), after=round(after, 2), steps=STEPS[name], torch=torch.__version__,
                command=f'python benchmarks/train_small.py {name}')


def predicted(model: nn.Module, picture: Any) -> Any:
    """Return labels (H, W) that ``test_step`` gives for a picture (H, W, 3), uint8, BGR."""
    from mmseg.structures import SegDataSample
    size = picture.shape[:2]
    sample = SegDataSample(metainfo=dict(img_shape=size, ori_shape=size, pad_shape=size, scale_factor=(1.0, 1.0)))
    with torch.no_grad():
        answer = model.test_step(dict(inputs=[as_tensor(picture)], data_samples=[sample]))  # type: ignore[operator]
    return answer[0].pred_sem_seg.data[0].numpy()


def miou(name: str, predict: Callable[[Any], Any]) -> float:
    """Return the mean IoU over classes, in percent, of `predict` on the validation scenes, as mmseg's own metric counts."""
    from mmexport.compat import provide_mmcv_ext
    provide_mmcv_ext()
    from mmseg.evaluation import IoUMetric
    classes = 4 if name == 'shapes_slide' else 2
    totals = [torch.zeros(classes), torch.zeros(classes)]
    for picture, labels in validation(name):
        areas = IoUMetric.intersect_and_union(torch.as_tensor(predict(picture)).long(), torch.as_tensor(labels).long(), classes, 255)
        totals = [total + area for total, area in zip(totals, areas[:2], strict=True)]
    return float(100 * (totals[0] / totals[1].clamp_min(1)).mean())


def validation(name: str) -> list[Scene]:
    return [DRAWN[name](seed, *SIZE) for seed in VALIDATION]


def _loss(model: nn.Module, scenes: list[Scene]) -> Tensor:
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample
    samples = []
    for _, labels in scenes:
        size = labels.shape
        sample = SegDataSample(metainfo=dict(img_shape=size, ori_shape=size, pad_shape=size, scale_factor=(1.0, 1.0)))
        sample.gt_sem_seg = PixelData(data=torch.as_tensor(labels).long()[None])
        samples.append(sample)
    data = model.data_preprocessor(dict(inputs=[as_tensor(picture) for picture, _ in scenes], data_samples=samples), True)  # type: ignore
    losses = model.loss(data['inputs'], data['data_samples'])  # type: ignore[operator]
    return sum(value for key, value in losses.items() if 'loss' in key)  # type: ignore[return-value]


if __name__ == '__main__':
    sys.exit(train_named(__doc__, DRAWN, CONFIGS, train))
