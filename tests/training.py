"""Train a tiny segmentor for four iterations on made pictures, with a real Runner."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.config import Config
from mmengine.hooks import Hook

from mmexport.compat import provide_mmcv_ext


class AmpOnSave(Hook):
    """Write what AMP leaves in a checkpoint, where AmpOptimWrapper itself refuses the CPU: half weights and a scaler's state."""

    def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint['state_dict'] = {key: value.half() if value.is_floating_point() else value
                                    for key, value in checkpoint['state_dict'].items()}
        checkpoint['optimizer']['loss_scaler'] = torch.amp.GradScaler('cpu', enabled=True).state_dict()


def config(work_dir: Path, amp: bool = False, ema: bool = False, hooks: list[Any] | None = None) -> Config:
    data = work_dir / 'data'
    _pictures(data)
    norm = dict(type='BN', requires_grad=True)
    pipeline = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')]
    dataset = dict(type='BaseSegDataset', data_root=str(data), data_prefix=dict(img_path='img', seg_map_path='ann'),
                   metainfo=dict(classes=('a', 'b', 'c', 'd'), palette=[[0] * 3, [60] * 3, [120] * 3, [180] * 3]), pipeline=pipeline)
    loader = dict(batch_size=2, num_workers=0, sampler=dict(type='InfiniteSampler', shuffle=True), dataset=dataset)
    optimizer = dict(type='SGD', lr=0.05)
    return Config(dict(
        default_scope='mmseg',
        model=dict(
            type='EncoderDecoder',
            data_preprocessor=dict(type='SegDataPreProcessor', mean=[110.] * 3, std=[60.] * 3, bgr_to_rgb=True, size=(64, 64),
                                   pad_val=0, seg_pad_val=255),
            backbone=dict(type='MixVisionTransformer', embed_dims=8, num_layers=[1, 1, 1, 1], num_heads=[1, 2, 4, 8],
                          patch_sizes=[7, 3, 3, 3], sr_ratios=[8, 4, 2, 1], out_indices=(0, 1, 2, 3), mlp_ratio=2),
            decode_head=dict(type='SegformerHead', in_channels=[8, 16, 32, 64], in_index=[0, 1, 2, 3], channels=16, num_classes=4,
                             norm_cfg=norm, align_corners=False, dropout_ratio=0.0, loss_decode=dict(type='CrossEntropyLoss')),
            test_cfg=dict(mode='whole')),
        train_dataloader=loader, train_cfg=dict(type='IterBasedTrainLoop', max_iters=4),
        optim_wrapper=dict(type='AmpOptimWrapper' if amp else 'OptimWrapper', optimizer=optimizer),
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', interval=4, by_epoch=False, save_optimizer=True)),
        custom_hooks=[*([dict(type='EMAHook', momentum=0.3)] if ema else []), *(hooks or [])],
        work_dir=str(work_dir), log_level='ERROR', experiment_name=work_dir.name,
        export=dict(inputs=dict(shape=(64, 64)), verify=dict(shapes=[(97, 65)], noises=1))))


def train(work_dir: Path, **kwargs: Any) -> Any:
    """Return the runner after training; ``runner.ema_hook`` is its EMAHook, where it has one."""
    provide_mmcv_ext()
    import mmseg.datasets
    import mmseg.models  # noqa: F401
    from mmengine.hooks import EMAHook
    from mmengine.runner import Runner
    half = kwargs.pop('half', False)
    runner = Runner.from_cfg(config(work_dir, **kwargs))
    if half:
        runner.register_hook(AmpOnSave())
    runner.train()
    runner.ema_hook = next((hook for hook in runner.hooks if isinstance(hook, EMAHook)), None)
    return runner


def _pictures(data: Path) -> None:
    generator = np.random.default_rng(0)
    for folder in ('img', 'ann'):
        (data / folder).mkdir(parents=True, exist_ok=True)
    for index in range(4):
        labels = np.kron(generator.integers(0, 4, (4, 4)), np.ones((16, 16))).astype(np.uint8)
        picture = (labels[..., None] * 60 + generator.integers(0, 40, (64, 64, 3))).clip(0, 255).astype(np.uint8)
        cv2.imwrite(str(data / 'img' / f'{index}.jpg'), picture)
        cv2.imwrite(str(data / 'ann' / f'{index}.png'), labels)
