"""Test that DDQ chooses the same queries for a batch at once as upstream does picture by picture."""
from __future__ import annotations

import pytest
import torch
from mmexport.patches.ddq_queries import DdqQueries
from torch import Tensor

from mmexport.adapters import build_adapter
from mmexport.adapters.detection.distinct import LEFT_OUT
from mmexport.inputs.synthetic import picture
from mmexport.patching import Environment, patched
from tests.detectors import seeded_detector

PATCHES = ['DdqQueries', 'DeformableDetrShapes', 'DinoDecoder', 'MultiScaleDeformableAttention']


@pytest.mark.parametrize(('version', 'applies'), [('3.0.0', False), ('3.1.0', False), ('3.2.0', True), ('3.3.0', True)])
def test_older_mmdet_has_no_ddq(version: str, applies: bool) -> None:
    assert (DdqQueries().check(Environment(versions=dict(mmdet=version))) is None) is applies


@pytest.mark.parametrize('shape', [(2, 3, 128, 160), (1, 3, 161, 250)])
def test_patched_computes_what_upstream_computes(shape: tuple[int, int, int, int]) -> None:
    adapter = build_adapter(seeded_detector('ddq'), outputs='raw')
    image = picture(shape, 1, adapter)
    with torch.no_grad():
        expected = adapter.raw(image)
        with patched(PATCHES) as rows:
            actual = adapter.raw(image)
    assert {row.name for row in rows if row.acted} == set(PATCHES)
    for one, other in zip(expected, actual, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-3)


def clusters(seed: int) -> tuple[Tensor, Tensor]:
    """Return boxes (2, 100, 4), centre and size, many of which overlap by more than 0.8, and queries."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(2, 10, 1, 2, generator=generator).expand(-1, -1, 10, -1) + 0.01 * torch.randn(2, 10, 10, 2, generator=generator)
    sizes = (0.2 + 0.1 * torch.rand(2, 10, 1, 2, generator=generator)).expand(-1, -1, 10, -1)
    return torch.cat([centres, sizes], dim=3).flatten(1, 2), torch.randn(2, 100, 256, generator=generator)


@pytest.mark.parametrize('seed', range(4))
def test_queries_that_resemble_better_ones_are_left_out(seed: int) -> None:
    """Through two layers, of which the second chooses among what the first left."""
    model = seeded_detector('ddq')
    decoder, heads = model.decoder, model.cache_dict['num_heads']
    model.cache_dict.update(dis_query_info=[0, 100], distinct_query_mask=[])
    masks = []
    for patches in ([], PATCHES):
        mask = torch.zeros(2 * heads, 100, 100, dtype=torch.bool)
        with torch.no_grad(), patched(patches):
            for layer in (0, 1):
                boxes, queries = clusters(10 * seed + layer)
                mask = decoder.select_distinct_queries(boxes, queries, mask, layer)
        masks.append(mask)
    assert torch.equal(*masks)
    # The first row alone says what the next layer chooses among, as upstream reads it.
    assert 20 < int(masks[0].diagonal(dim1=1, dim2=2)[::heads].sum()) < 180


def test_logits_of_queries_that_do_not_count_are_out_of_reach() -> None:
    model = seeded_detector('ddq')
    adapter = build_adapter(model)
    image = picture((1, 3, 128, 160), 1, adapter)
    with torch.no_grad():
        raw = adapter.raw(image)
        counted = torch.arange(100) % 3 > 0
        raw = (torch.where(counted[None, :, None], raw[0], torch.full_like(raw[0], LEFT_OUT)), *raw[1:])
        _, scores, _, num = adapter.final(raw, image)
        slack = adapter.evidence(raw, image, {})['row_slack']
    assert float(scores.min()) > 1e-6 and int(num) == 60
    assert float(slack.max()) < 0.01, 'the scale of scores is that of queries that count'
