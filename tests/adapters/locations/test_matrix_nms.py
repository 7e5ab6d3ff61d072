"""Check matrix NMS against mmdet's."""
from __future__ import annotations

import pytest
import torch

from mmexport.adapters.locations.matrix_nms import decayed


@pytest.mark.parametrize('seed', range(20))
def test_scores_are_those_of_mmdet(seed: int) -> None:
    from mmdet.models.layers.matrix_nms import mask_matrix_nms
    generator = torch.Generator().manual_seed(seed)
    count = int(torch.randint(1, 40, (1,), generator=generator))
    masks = torch.rand(count, 6, 7, generator=generator) > torch.rand(count, 1, 1, generator=generator) * 0.9
    masks[:, 0, 0] = True
    masks[count // 2:] = masks[:count - count // 2].clone()
    labels = torch.randint(0, 3, (count,), generator=generator)
    scores = torch.rand(count, generator=generator).sort(descending=True).values
    expected, _, _, places = mask_matrix_nms(masks, labels, scores, sigma=2.0)
    # Rows that do not count change nothing, wherever they stand.
    padded = torch.cat([torch.ones(2, 42), masks.flatten(1).float(), torch.ones(5, 42)])
    rows = torch.cat([torch.ones(2), scores, torch.zeros(5)]), torch.cat([labels[:1].expand(2), labels, labels[:1].expand(5)])
    valid = (torch.arange(count + 7) >= 2) & (torch.arange(count + 7) < count + 2)
    actual = decayed(rows[0][None], rows[1][None], padded[None], valid[None], 2.0)[0, 2:count + 2]
    torch.testing.assert_close(actual[places], expected, atol=1e-6, rtol=1e-5)
    assert count < 4 or float((actual - scores).abs().max()) > 0.01
