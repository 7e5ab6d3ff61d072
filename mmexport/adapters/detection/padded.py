"""Export a detector for pictures of several sizes, padded into one batch."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...ops.padding import inside
from ..base import Adapter
from ..specs import IMAGE, InputSpec

if TYPE_CHECKING:
    from .detection import Detection
else:
    # It stands before a `Detection` in the order of methods.
    Detection = Adapter

# Of the pictures of a batch in turn, the shares of height and width that are picture; the rest is padding. Each side alone, both by
# different shares, and none: a file that takes one side for the other, or the first picture for all, gives other boxes.
INSIDE = ((0.75, 0.6), (1.0, 1.0), (0.6, 1.0), (1.0, 0.75))


def with_img_shape(cls: type[Detection], padded: type[Padded] | None = None) -> type[Detection]:
    """Return a subclass whose second input is ``img_shape`` (N, 2), int64: height and width."""
    return type(f'{cls.__name__}Padded', (padded or Padded, cls), {'__doc__': cls.__doc__})


class Padded(Detection):
    """End boxes at the picture's own border, given by ``img_shape``.

    mmdet does so by the metainfo of its data samples.
    """

    input_specs = (IMAGE, InputSpec('img_shape', ('batch', 'side'), 'int64'))
    # Whether a picture that ``test_step`` was run on was padded.
    padded = False

    def inputs_of(self, picture: Tensor) -> tuple[Tensor, ...]:
        """Return the picture, padded where it is one of several, and the sizes without padding."""
        count, _, height, width = picture.shape
        shares = INSIDE if count > 1 else ((1.0, 1.0),)
        sizes = torch.tensor([[int(share[0] * height), int(share[1] * width)] for share in shares], device=picture.device)
        sizes = sizes[torch.arange(count, device=picture.device) % len(sizes)]
        # The data_preprocessor pads with zeros after it has normalised.
        padding = torch.zeros_like(picture)
        if self.preprocess.inside:
            padding = self.preprocess.undo(padding)
        return torch.where(inside(sizes, height, width)[:, None], picture, padding), sizes

    def remarks(self) -> tuple[str, ...]:
        none = 'no input had padding, as none was a batch: what the file does with img_shape was not seen'
        return (*super().remarks(), *((none,) if self.outputs == 'final' and not self.padded else ()))

    def test_data(self, *inputs: Tensor) -> dict[str, Any]:
        samples = self.data_samples(inputs[0])
        self.padded = self.padded or bool((inputs[1] != self.sizes_of(inputs[0])).any())
        for sample, size in zip(samples, inputs[1].tolist(), strict=True):
            sample.set_metainfo(dict(img_shape=tuple(size), ori_shape=tuple(size)))
        return dict(inputs=inputs[0], data_samples=samples)

    def raw(self, image: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        return super().raw(image)

    def run_with_evidence(self, image: Tensor, img_shape: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        return self.raw(image), dict(img_shape=img_shape)

    def final(self, raw: tuple[Tensor, ...], image: Tensor, *img_shape: Tensor) -> tuple[Tensor, ...]:
        # A photograph that is padded comes alone, see `without_padding`.
        return self.kept_within(raw, img_shape[0] if img_shape else self.sizes_of(image))

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, recorded: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.close_calls_within(raw, recorded.get('img_shape', self.sizes_of(image)))


class PaddedQueries(Padded):
    """Mask padding in the decoders of queries, too: ``img_shape`` changes their raw outputs."""

    def raw(self, image: Tensor, *img_shape: Tensor) -> tuple[Tensor, ...]:
        return self._run(image, img_shape[0] if img_shape else None)[0]

    def run_with_evidence(self, image: Tensor, img_shape: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        raw, evidence = self._run(image, img_shape)
        return raw, {**evidence, 'img_shape': img_shape}

    def _run(self, image: Tensor, sizes: Tensor | None) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        # It stands before a `QueryDetection` in the order of methods.
        run_within: Any = self.run_within
        return run_within(image, sizes)  # type: ignore[no-any-return]
