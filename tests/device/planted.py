"""Write a user's project with one fault in it: ten kinds in four places, the line marked."""
from __future__ import annotations

from pathlib import Path

TEMPLATE = '''
import torch
from torch import nn
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.registry import MODELS
{module_own}

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(8, 8, 1)
        {init_own}

    def forward(self, x):
        {forward_own}
        return self.mix(x)
{module_backbone}

@MODELS.register_module(force=True)
class OwnBackbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 4, 1)
        self.mix = nn.Conv2d(8, 8, 1)
        {init_backbone}

    def forward(self, image):
        x = self.stem(image)
        {forward_backbone}
        return (self.mix(x),)
{module_neck}

@MODELS.register_module(force=True)
class OwnNeck(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = Own()
        self.mix = nn.Conv2d(8, 8, 1)
        {init_neck}

    def forward(self, levels):
        x = self.own(levels[0])
        {forward_neck}
        return (self.mix(x),)
{module_head}

@MODELS.register_module(force=True)
class OwnHead(BaseDecodeHead):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.mix = nn.Conv2d(8, 8, 1)
        {init_head}

    def forward(self, levels):
        x = levels[0]
        {forward_head}
        return self.cls_seg(self.mix(x))
'''
PLACES = {'backbone': 'backbone', 'neck': 'neck', 'head': 'decode_head', 'own': 'neck.own'}
ONES = 'torch.ones(1, 8, 1, 1)'
# kind of finding, what stands in the module file, in __init__ and in forward; the marked line is where it must be found.
FAULTS = {
    'attribute': ('attribute', '', f'self.scale = {ONES}  # FAULT', 'x = x * self.scale'),
    'list': ('container', '', f'self.scales = [{ONES}]  # FAULT', 'x = x * self.scales[0]'),
    'dict': ('container', '', f"self.scales = dict(one={ONES})  # FAULT", "x = x * self.scales['one']"),
    'closure': ('global', '', f'scale = {ONES}  # FAULT\n        self.scaled = lambda x: x * scale', 'x = self.scaled(x)'),
    'global': ('global', f'SCALE = {ONES}  # FAULT', '', 'x = x * SCALE'),
    'factory': ('factory', '', '', 'x = x + torch.zeros(x.shape[-1])  # FAULT'),
    'literal': ('literal', '', '', "x = x + torch.zeros(x.shape[-1], device=torch.device('cpu'))  # FAULT"),
    'cpu': ('cpu call', '', '', 'y = x.mean(1, keepdim=True).cpu()  # FAULT\n        x = x * y'),
    'numpy': ('numpy', '', '', 'y = torch.from_numpy(x.detach().cpu().numpy() * 2)  # FAULT\n        x = x + y'),
    'parameter': ('parameter', '', 'self.extra = [nn.Conv2d(8, 8, 1)]  # FAULT', 'x = self.extra[0](x)'),
    'half': ('dtype', '', '', 'x = x.half()  # FAULT'),
}
# What looks alike and is right.
CLEAN = {
    'a 0-dimensional CPU tensor': 'x = x * torch.tensor(2.0)',
    'a CPU index': 'x = x[:, torch.arange(8)]',
    'device of the input': 'x = x + torch.zeros(x.shape[-1], device=x.device)',
    'new_zeros': 'x = x + x.new_zeros(x.shape[-1])',
    'like': 'x = x + torch.zeros_like(x)',
    'back again': 'x = x + x.cpu().mean().to(x.device)',
    'a slice that is assigned': 'y = x.clone()\n        y[:, 0] = torch.zeros(y.shape[-2:])\n        x = y',
    'a number': 'x = x * float(torch.ones(1)) * x.detach().cpu().numpy().max().item()',
    'type of another': 'x = x + torch.ones(8, 1, 1).type_as(x)',
    'asks is_cuda': 'x = x + (torch.zeros(1, device="cuda") if x.is_cuda else torch.zeros(1))',
    'half and back': 'x = x.half().float()',
}


def source(place: str, fault: str) -> str:
    _, module, init, forward = FAULTS[fault]
    return filled(place, module, init, forward)


def clean_source(place: str, forward: str) -> str:
    return filled(place, '', '', forward)


def marked_line(path: Path) -> int:
    return 1 + next(number for number, line in enumerate(path.read_text().splitlines()) if '# FAULT' in line)


def filled(place: str, module: str, init: str, forward: str) -> str:
    slots = {f'{slot}_{name}': '' if slot == 'module' else 'pass' for slot in ('module', 'init', 'forward') for name in PLACES}
    slots |= {f'module_{place}': module, f'init_{place}': init or 'pass', f'forward_{place}': forward or 'pass'}
    return TEMPLATE.format(**slots)


CONFIG = '''
custom_imports = dict(imports=['{module}'], allow_failed_imports=False)
default_scope = 'mmseg'
crop_size = (64, 96)
model = dict(
    type='EncoderDecoder', data_preprocessor=dict(type='SegDataPreProcessor', mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375],
                                                  bgr_to_rgb=True, size=crop_size),
    backbone=dict(type='OwnBackbone'), neck=dict(type='OwnNeck'),
    decode_head=dict(type='OwnHead', in_channels=8, channels=8, num_classes=5, norm_cfg=None,
                     loss_decode=dict(type='CrossEntropyLoss')),
    train_cfg=dict(), test_cfg=dict(mode='whole'))
'''
