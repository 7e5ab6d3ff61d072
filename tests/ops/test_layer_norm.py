import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mmexport.ops.layer_norm import layer_norm
from mmexport.ops.layer_norm.probe import LayerNormProbe
from mmexport.ops.op import registered, with_forms
from mmexport.patching import patched


@pytest.mark.parametrize('shape', [(6,), (5, 6), (4, 5, 6)])
@pytest.mark.parametrize('affine', [True, False])
def test_both_forms_normalize_alike(shape, affine):
    torch.manual_seed(0)
    image = torch.randn(2, 4, 5, 6).double()
    weight, bias = (torch.randn(shape).double(), torch.randn(shape).double()) if affine else (None, None)
    with with_forms(layer_norm='centred'):
        centred = layer_norm(F.layer_norm, image, shape, weight, bias, 1e-3)
    torch.testing.assert_close(centred, F.layer_norm(image, shape, weight, bias, 1e-3), atol=1e-12, rtol=0)


def test_a_variance_of_one_pass_is_wrong_before_and_right_after():
    """Take the runtime's formula in the place of torch's operator."""
    def one_pass(input, shape, weight, bias, eps):
        mean, square = input.mean(-1, keepdim=True), (input * input).mean(-1, keepdim=True)
        return (input - mean) / (square - mean * mean + eps).sqrt() * weight + bias

    torch.manual_seed(0)
    image, weight, bias = 0.3 + 0.005 * torch.randn(64, 150), torch.ones(150), torch.zeros(150)
    exact = F.layer_norm(image.double(), (150,), weight.double(), bias.double()).float()
    scale = exact.abs().max()
    assert (layer_norm(one_pass, image, (150,), weight, bias) - exact).abs().max() > 1e-4 * scale
    with with_forms(layer_norm='centred'):
        assert (layer_norm(one_pass, image, (150,), weight, bias) - exact).abs().max() < 2e-6 * scale


def test_the_patch_leaves_eager_as_it_is_and_is_counted():
    module, image = nn.LayerNorm(6), torch.randn(2, 6)
    expected = module(image)
    with patched(['LayerNorm']) as rows:
        assert torch.equal(module(image), expected)
    assert rows[0].acted


def test_the_op_is_probed_in_models_that_have_the_layer():
    op, = (one for one in registered() if one.name == 'layer_norm')
    assert op.occurs_in(nn.Sequential(nn.LayerNorm(3))) and not op.occurs_in(nn.Sequential(nn.BatchNorm2d(3)))
    exact, = LayerNormProbe().double()(torch.randn(1, 3, 16, 16).double())
    assert 0.5 < exact.std() < 2
