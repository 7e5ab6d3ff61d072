"""Test DCN and DCNv2 by the patch, against mmcv's kernel; mmexport's reference kernel where mmcv has none."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from mmexport import Exporter
from mmexport.compat import provide_mmcv_ext
from mmexport.model.build import build_model
from mmexport.patching import patched
from mmexport.report.terminal import render
from mmexport.seeding import seed_model
from tests.patches.comparing import ROUNDING, both, traced_once
from tests.tiny import tiny

provide_mmcv_ext()


def _deformable(kind: str) -> nn.Module:
    from mmcv.ops import DeformConv2dPack, ModulatedDeformConv2dPack
    torch.manual_seed(0)
    layer = {'DCN': DeformConv2dPack, 'DCNv2': ModulatedDeformConv2dPack}[kind](8, 6, 3, stride=2, padding=1, deform_groups=2).eval()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer


@pytest.mark.parametrize('kind', ['DCN', 'DCNv2'])
def test_deformable_convolution_without_compiled_ops(kind: str) -> None:
    layer = _deformable(kind)
    traced = traced_once('DeformableConvolution', layer, (torch.randn(1, 8, 12, 16),))
    for shape in ((2, 8, 12, 16), (1, 8, 17, 9)):
        image = torch.randn(shape)
        with patched(['DeformableConvolution']), torch.no_grad():
            expected = layer(image)
        assert expected.shape == (shape[0], 6, (shape[2] + 1) // 2, (shape[3] + 1) // 2)
        assert torch.allclose(traced(image), expected, atol=1e-5)
    # With offsets of zero (and masks of one half) it is an ordinary convolution.
    nn.init.zeros_(layer.conv_offset.weight)
    nn.init.zeros_(layer.conv_offset.bias)
    plain = nn.functional.conv2d(image, layer.weight, None, 2, 1) * (0.5 if kind == 'DCNv2' else 1.0)
    plain = plain if getattr(layer, 'bias', None) is None else plain + layer.bias.view(1, -1, 1, 1)
    with patched(['DeformableConvolution']), torch.no_grad():
        assert torch.allclose(layer(image), plain, atol=1e-5)


@pytest.mark.parametrize('kind', ['DCN', 'DCNv2'])
def test_deformable_convolution_equals_the_kernel(kind: str) -> None:
    layer = _deformable(kind)
    for shape in ((2, 8, 12, 16), (1, 8, 17, 9)):
        image = torch.randn(shape)
        one, other = both('DeformableConvolution', lambda image=image: layer(image))
        assert float((one - other).abs().max()) <= 10 * ROUNDING * float(one.abs().max())


@pytest.mark.slow
def test_a_segmentor_with_deformable_layers_passes(tmp_path: Path) -> None:
    """The reference is eager on mmcv's kernel; mmexport's own where mmcv has none, which the report names."""
    cfg = tiny('pspnet', backends=['torchscript', 'onnx'], inputs=dict(shape=(1, 3, 96, 128)), verify=dict(shapes=[(97, 65)], batch=2))
    cfg.model.backbone.update(dcn=dict(type='DCNv2', deform_groups=1, fallback_on_stride=False),
                              stage_with_dcn=(False, True, True, True))
    model = build_model(cfg)
    for name, parameter in model.named_parameters():
        if 'conv_offset' in name:
            # Upstream starts with offsets of zero, which is an ordinary convolution.
            nn.init.normal_(parameter, std=0.02)
    seed_model(model, size=(96, 128))
    report, = Exporter(cfg, None, tmp_path, model=model, diagnose=False).run()
    assert report.passed, report.reasons
    assert 'DeformableConvolution' in [row.name for row in report.applied if row.acted]
    if report.versions['mmcv_ops'] == 'stand-in':
        assert "mmexport's kernel modulated_deform_conv_forward" in '\n'.join(render(report))
