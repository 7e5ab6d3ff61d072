"""Export open-vocabulary semantic segmentation: mmseg's MultimodalEncoderDecoder (SAN)."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ...registry import ADAPTERS
from ...utils.override import override
from ..image_metas import image_metas
from .semantic_masks import SemanticMasks


@ADAPTERS.register_module()
class OpenVocabulary(SemanticMasks):
    """Wrap SAN, with outputs as `SemanticMasks`; each class is an embedding of the text encoder.

    The vocabulary belongs to the model and does not depend on the picture: the text encoder computes it once, and the file holds the result
    as a constant. Another vocabulary needs another export.
    """

    task = 'semantic (open vocabulary)'

    words: Tensor

    def __init__(self, model: nn.Module, outputs: str = 'final', normalize: bool = False) -> None:
        super().__init__(model, outputs, normalize)
        with torch.no_grad():
            self.register_buffer('words', model.text_encoder().clone(), persistent=False)  # type: ignore[operator]

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        return all(hasattr(model, name) for name in ('encode_decode', 'text_encoder', 'image_encoder')) and hasattr(
            getattr(model, 'decode_head', None), 'rec_with_attnbias')

    def logits(self, image: Tensor) -> tuple[Tensor, Tensor]:
        with override(self.model.text_encoder, 'forward', lambda: self.words), \
                override(self.head, 'predict_by_feat', lambda logits, metas: logits):
            masks, classes = self.model.encode_decode(image, image_metas(image))  # type: ignore[operator]
        return classes, masks
