"""Make small variants of the listed configs: the same classes from the same packages, a quarter of the channels, few layers."""
from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from torch import nn

from mmexport.model.build import build_model
from mmexport.model.config import load_config
from mmexport.seeding import seed_model
from tests.shared_weights import seed_or_load

CONFIGS = Path(__file__).parent.parent / 'configs'
NAMES = sorted(path.stem for path in CONFIGS.glob('*.py'))
CHANNELS = {'embed_dims', 'feat_channels', 'out_channels', 'in_channels', 'channels', 'feedforward_channels', 'num_feats',
            'c1_in_channels', 'c1_channels', 'detail_channels', 'semantic_channels', 'bga_channels', 'fc_channels'}
SHAPE = (1, 3, 128, 160)


@cache
def _read(path: Path | str) -> Config:
    return load_config(path)


def read_once(path: Path | str) -> Config:
    """Return a copy of a config that is read once per process: reading takes up to half a second."""
    return deepcopy(_read(path))


def tiny(name: str, **export: Any) -> Config:
    """Return the config `name` from configs/, made small, with `export` merged into its export section."""
    cfg = read_once(CONFIGS / f'{name}.py')
    backbone = cfg.model.backbone
    _explicit_defaults(backbone)
    _divide(cfg.model, 4)
    _special(cfg.model, backbone)
    # The packaged photograph at the pipeline's own scale would be a hundred times the traced picture.
    for step in cfg.get('test_dataloader', {}).get('dataset', {}).get('pipeline', ()):
        if step.type == 'Resize':
            step.scale = (192, 128)
    section = dict(inputs=dict(shape=SHAPE), verify=dict(shapes=[(161, 97)], noises=2, batch=3))
    section['inputs'] = {**section['inputs'], **export.pop('inputs', {})}
    section['verify'] = {**section['verify'], **export.pop('verify', {})}
    cfg.export = {**section, **export}
    return cfg


def _explicit_defaults(backbone: Any) -> None:
    if backbone.type == 'BiSeNetV2':
        backbone.update(detail_channels=(64, 64, 128), semantic_channels=(16, 32, 64, 128), bga_channels=128)
    if backbone.type in ('ResNet', 'ResNetV1c'):
        backbone.base_channels = 16
        backbone.stem_channels = 16


def _divide(node: Any, by: int) -> None:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in CHANNELS and isinstance(value, int) and value >= 8:
                node[key] = value // by
            elif key in CHANNELS and isinstance(value, (list, tuple)):
                node[key] = type(value)(item // by for item in value)
            else:
                _divide(value, by)
    elif isinstance(node, (list, tuple)):
        for item in node:
            _divide(item, by)


def _special(model: Any, backbone: Any) -> None:
    head = model.get('decode_head')
    if isinstance(head, dict) and head.type == 'FCNHead' and backbone.type == 'ResNetV1c':
        # What most tests export: a third of the layers.
        backbone.depth = 18
        head.in_channels, model.auxiliary_head.in_channels = 128, 64
    if backbone.type == 'SwinTransformer':
        backbone.depths = [2, 2, 2, 2]
    if backbone.type == 'VisionTransformer':
        backbone.num_layers = 4
        backbone.img_size = (128, 160)
        if isinstance(backbone.get('out_indices'), (list, tuple)):
            backbone.out_indices = (0, 1, 2, 3)
        model.test_cfg.update(crop_size=(128, 160), stride=(85, 107))
    if backbone.type == 'HRNet':
        widths = (8, 16, 32, 64)
        for stage in (2, 3, 4):
            backbone.extra[f'stage{stage}'].num_channels = widths[:stage]
            backbone.extra[f'stage{stage}'].num_modules = 1
        for head in model.decode_head:
            head.in_channels = list(widths)
        model.decode_head[0].channels = sum(widths)
    if model.get('test_cfg', {}).get('subdivision_num_points'):
        model.test_cfg.subdivision_num_points = 512
    for key in ('panoptic_head', 'decode_head'):
        head = model.get(key)
        if isinstance(head, dict) and 'pixel_decoder' in head:
            head.num_queries = 60
            head.pixel_decoder.encoder.num_layers = 2
            head.transformer_decoder.num_layers = 6 if 'Mask2Former' in head.type else 3


@cache
def seeded(name: str) -> nn.Module:
    """Return the tiny model of `name` with seeded weights, made once per process and slow ones once per run.

    Seeding takes the first choice of regions that is rich enough, and rounding decides which one that is, so a processor with AVX-512
    gets other readouts than one without. Where a test asks how many classes are decided, readouts are kept under tests/data/seeded.
    """
    model = build_model(tiny(name))
    seed_or_load(name, model, lambda: seed_model(model, size=SHAPE[2:]))
    if readouts_of(name).is_file():
        unknown = model.load_state_dict(torch.load(readouts_of(name), weights_only=True), strict=False).unexpected_keys
        assert not unknown, unknown
    return model


def mask_classifier(name: str, *, panoptic: bool, instance: bool, **export: Any) -> tuple[Config, nn.Module]:
    """Return config and seeded model of a mask classifier of mmdet whose `test_cfg` asks for panoptic maps, for instances or for both."""
    cfg, model = tiny(name, **export), deepcopy(seeded(name))
    for settings in (cfg.model.test_cfg, model.test_cfg, model.panoptic_fusion_head.test_cfg):
        settings.update(panoptic_on=panoptic, instance_on=instance, semantic_on=False, max_per_image=20)
    return cfg, model


def readouts_of(name: str) -> Path:
    return Path(__file__).parent / 'data' / 'seeded' / f'{name}.pth'


def keep_readouts(name: str) -> None:
    """Write the readouts of query heads that the seeding gives on this processor; tests/data/README.md has the command."""
    readouts_of(name).unlink(missing_ok=True)
    weights = seeded(name).state_dict()
    readouts_of(name).parent.mkdir(exist_ok=True)
    torch.save({key: value.clone() for key, value in weights.items()
                if '.cls_embed.' in key or '.mask_embed.4.' in key or key.endswith('mask_feature.bias')}, readouts_of(name))
