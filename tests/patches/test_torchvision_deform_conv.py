"""Test torchvision's deformable convolution: the real one where it is installed, and one with its schema everywhere."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.patches.comparing import both, traced_once

# What torchvision/ops/deform_conv.py does, over an op whose fake kernel sees a tensor of another device than the others.
PLANTED = '''
import torch

def deform_conv2d(input, offset, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), mask=None):
    use_mask = mask is not None
    mask = torch.zeros((input.shape[0], 1)) if mask is None else mask
    bias = torch.zeros(weight.shape[0]) if bias is None else bias
    return torch.ops.torchvision.deform_conv2d(input, weight, offset, mask, bias, *stride, *padding, *dilation, 1, 1, use_mask)

class DeformConv2d(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 3, 3, 3))

    def forward(self, input, offset):
        return deform_conv2d(input, offset, self.weight, None, (1, 1), (1, 1), (1, 1))
'''
CODE = '''
import sys
sys.path.insert(0, {folder!r})
import torch
library = torch.library.Library('torchvision', 'DEF')
library.define('deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, '
               'SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) '
               '-> Tensor')

@torch.library.register_fake('torchvision::deform_conv2d')
def fake(*args):
    raise RuntimeError('Unhandled FakeTensor Device Propagation for torchvision.deform_conv2d.default, found two different devices')

import torchvision.ops.deform_conv
from mmexport.patching import patched
module = torchvision.ops.deform_conv.DeformConv2d().eval()
inputs = torch.randn(2, 3, 8, 9), torch.zeros(2, 18, 8, 9)
try:
    torch.export.export(module, inputs, strict=False)
    print('exported without the patch')
except Exception as exc:
    print('Unhandled FakeTensor Device Propagation' in str(exc))
with patched(['TorchvisionDeformableConvolution']) as rows:
    program = torch.export.export(module, inputs, strict=False)
expected = torch.nn.functional.conv2d(inputs[0], module.weight, padding=1)
print(torch.allclose(program.module()(*inputs), expected, atol=1e-5), 'torchvision' in str(program.graph))
'''


@pytest.mark.skipif(not hasattr(torch.library, 'register_fake'), reason='torch before 2.4 has no torch.library.register_fake')
def test_an_op_that_fails_under_export_is_replaced(tmp_path: Path) -> None:
    (tmp_path / 'torchvision' / 'ops').mkdir(parents=True)
    for folder in ('', 'ops'):
        (tmp_path / 'torchvision' / folder / '__init__.py').write_text('')
    (tmp_path / 'torchvision' / 'ops' / 'deform_conv.py').write_text(PLANTED)
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', CODE.format(folder=str(tmp_path))], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ['True', 'True', 'False']


@pytest.mark.parametrize('modulated', [False, True])
def test_the_patch_equals_torchvision(modulated: bool) -> None:
    ops = pytest.importorskip('torchvision.ops', reason='torchvision is not installed', exc_type=ImportError)
    torch.manual_seed(0)
    module = ops.DeformConv2d(8, 6, 3, stride=(2, 1), padding=(1, 2), groups=2, bias=modulated).eval()

    def inputs(height: int, width: int) -> tuple[torch.Tensor, ...]:
        size = (height + 1) // 2, width + 2
        offset = torch.randn(2, 2 * 2 * 9, *size)
        return (torch.randn(2, 8, height, width), offset, *([torch.rand(2, 2 * 9, *size)] if modulated else []))

    example, others = inputs(12, 9), inputs(7, 15)
    one, other = both('TorchvisionDeformableConvolution', lambda: module(*example))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    traced = traced_once('TorchvisionDeformableConvolution', module, example)
    with torch.no_grad():
        torch.testing.assert_close(traced(*others), module(*others), rtol=1e-4, atol=1e-5)
