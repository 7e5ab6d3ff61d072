"""Test that a head which decodes its heat maps in a way of its own is refused."""
from __future__ import annotations

import copy

import pytest

from mmexport.adapters import build_adapter
from mmexport.errors import UnsupportedModelError
from tests.detectors import seeded_detector

pytestmark = pytest.mark.xdist_group('dense')


@pytest.mark.parametrize('name', ['centernet', 'cornernet'])
def test_a_head_of_its_own_is_refused(name: str) -> None:
    model = copy.deepcopy(seeded_detector(name))

    class Head(type(model.bbox_head)):  # type: ignore[misc]
        def _decode_heatmap(self, *args: object, **kwargs: object) -> object:
            return super()._decode_heatmap(*args, **kwargs)

    model.bbox_head.__class__ = Head
    with pytest.raises(UnsupportedModelError, match='Head decides by a _decode_heatmap of Head, which mmexport does not know'):
        build_adapter(model)
