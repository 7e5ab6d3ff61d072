"""Test that models with mmcv's synchronised BatchNorm are built in one process."""
from __future__ import annotations

import torch
from mmengine.config import Config
from torch import nn

from mmexport.compat import provide_mmcv_ext
from mmexport.model.build import build_model
from mmexport.model.norms import without_process_group


def model(norm: dict[str, object]) -> Config:
    head = dict(type='FCNHead', in_channels=8, channels=8, num_classes=3, num_convs=1, norm_cfg=norm, in_index=0)
    backbone = dict(type='ResNet', depth=18, base_channels=8, stem_channels=8, num_stages=1, strides=(1,), dilations=(1,), out_indices=(0,),
                    norm_cfg=norm)
    return Config(dict(model=dict(type='EncoderDecoder', backbone=backbone, decode_head=head, test_cfg=dict(mode='whole')),
                       default_scope='mmseg'))


def test_a_model_with_mmcvs_norm_is_that_with_a_plain_one() -> None:
    described = model(dict(type='MMSyncBN', requires_grad=True, stats_mode='N'))
    synchronised, plain = build_model(described), build_model(model(dict(type='BN')))
    assert described.model.backbone.norm_cfg.type == 'MMSyncBN', 'the config is as it was'
    assert synchronised.state_dict().keys() == plain.state_dict().keys()
    plain.load_state_dict(synchronised.state_dict())
    assert not any('Sync' in type(module).__name__ for module in synchronised.modules())
    image = torch.randn(1, 3, 32, 32)
    assert torch.equal(synchronised(image), plain(image))


def test_other_norms_stay() -> None:
    provide_mmcv_ext()
    from mmcv.ops import SyncBatchNorm
    parts = [dict(type='mmcv.MMSyncBN', eps=1e-3), dict(type=SyncBatchNorm, stats_mode='N'), dict(type='GN', num_groups=2),
             dict(type='SyncBN'), nn.ReLU, 'MMSyncBN']
    assert without_process_group(parts) is parts
    assert parts == [dict(type='SyncBN', eps=1e-3), dict(type='SyncBN'), dict(type='GN', num_groups=2), dict(type='SyncBN'), nn.ReLU,
                     'MMSyncBN']
