"""Test mmseg's resize and Upsample: the sizes that are there, and no question about them."""
from __future__ import annotations

import pytest
import torch

from mmexport.backends.exported.internals.open_sizes import exporter
from mmexport.patching import patched
from tests.patches.comparing import both, traced_once
from tests.programs import needs_program


@pytest.mark.parametrize('scale', [2, 1.7, 0.5, (2.0, 3.0)])
def test_upsample_equals_upstream(scale: object) -> None:
    from mmseg.models.utils.wrappers import Upsample
    layer = Upsample(scale_factor=scale, mode='bilinear', align_corners=False)
    if isinstance(scale, tuple):
        with patched(['Upsample']):
            assert layer(torch.zeros(1, 1, 5, 7)).shape[-2:] == (10, 21)
        return
    for size in ((13, 17), (32, 40)):
        image = torch.randn(2, 3, *size)
        one, other = both('Upsample', lambda image=image: layer(image))
        assert torch.equal(one, other)
    traced = traced_once('Upsample', layer, (torch.randn(1, 3, 16, 20),))
    image = torch.randn(2, 3, 21, 11)
    assert torch.equal(traced(image), layer(image))


@needs_program
def test_resize_asks_nothing_of_open_sizes() -> None:
    """With upstream's question the program refuses what is not the example's size: DeepLabV3 with align_corners."""
    from mmseg.models.decode_heads.psp_head import resize

    def enlarged(image: torch.Tensor) -> torch.Tensor:
        from mmseg.models.decode_heads import psp_head
        small = image[:, :, ::8, ::8]
        return psp_head.resize(small, size=image.shape[2:], mode='bilinear', align_corners=True)  # type: ignore[no-any-return]

    class Enlarged(torch.nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return enlarged(image)

    one, other = both('ResizeWarning', lambda: enlarged(torch.ones(1, 2, 65, 81)))
    assert torch.equal(one, other)
    auto = torch.export.Dim.AUTO
    with patched(['ResizeWarning']), torch.no_grad():
        export = exporter()
        assert export is not None
        program = export(Enlarged(), (torch.zeros(2, 3, 480, 544),), dynamic_shapes=({2: auto, 3: auto},),
                                      strict=False)
    for size in ((65, 81), (97, 64)):
        image = torch.randn(2, 3, *size)
        assert torch.equal(program.module()(image), enlarged(image))
    from mmseg.models.decode_heads import psp_head
    assert psp_head.resize is resize
