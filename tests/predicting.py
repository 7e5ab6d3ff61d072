"""Run OpenMMLab's own ``predict`` on a normalised batch, and return tensors by our names."""
from __future__ import annotations

from typing import Any

from torch import Tensor

from mmexport.adapters import Adapter, MaskClassification


def predicted(adapter: Adapter, image: Tensor) -> dict[str, Tensor]:
    size = tuple(image.shape[2:])
    meta: dict[str, Any] = dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size, scale_factor=(1.0, 1.0),
                                padding_size=[0, 0, 0, 0])
    if isinstance(adapter, MaskClassification):
        from mmdet.structures import DetDataSample as DataSample
    else:
        from mmseg.structures import SegDataSample as DataSample
    samples = [DataSample(metainfo=dict(meta)) for _ in range(image.shape[0])]
    return adapter.read(adapter.model.predict(image, samples))  # type: ignore[operator]
