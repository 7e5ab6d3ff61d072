"""Convert between an adapter's tensors and OpenMMLab's data samples.

``test_step`` can be compared with the adapter so.
"""
from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor


class DataSamples:
    """Define the part of an adapter that only the comparison with ``test_step`` needs."""

    def without_padding(self, raw: tuple[Tensor, ...], image: Tensor, size: tuple[int, int], expected: dict[str, Tensor],
                        evidence: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return what ``test_step`` gives for an image padded from `size` (height, width) on. Maps are cropped to it already."""
        return expected, evidence

    def test_data(self, *inputs: Tensor) -> dict[str, Any]:
        """Return what ``test_step`` computes with behind the data_preprocessor, given what `network_inputs` returns."""
        return dict(inputs=inputs[0], data_samples=self.data_samples(inputs[0]))

    def testing(self) -> AbstractContextManager[None]:
        """Let ``test_step`` return what a file does, where it would go on with it."""
        return nullcontext()

    def unscaled(self, size: tuple[int, int]) -> dict[str, Any]:
        """Return the metainfo by which ``test_step`` gives coordinates of the input.

        Args:
            size: height and width of the input.
        """
        return dict(ori_shape=size, scale_factor=(1.0, 1.0))

    def data_samples(self, image: Tensor) -> list[Any]:
        """Return OpenMMLab's data samples for ``test_step`` on `image`. There is one, unpadded, for each picture of the batch."""
        raise NotImplementedError

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        """Convert the data samples of ``test_step`` or ``predict`` to the ``final`` outputs by name."""
        raise NotImplementedError
