"""Record the attention masks of a Mask2Former head, or let eager take those of a file.

Before each decoder layer the head compares a logit of every cell with 0, and queries do not attend to cells below. Rounding decides that of
cells near 0, and what one query attends to moves all its outputs by up to 1e-2. Two right models that round otherwise can be compared only
with the same masks; then they agree as far as their arithmetic does.
"""
from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..checker.kinds.attention import CELLS, DECIDING
from ..utils.override import override
from .base import Adapter
from .specs import OutputSpec, mask_specs

ATTENTION = 'attention'
SPEC = OutputSpec(ATTENTION, 'bool', ('batch', 'query', 'cell'), 'attention')
UPSTREAM = 'mmdet.models.dense_heads.mask2former_head'
# The least scale of logits: the default tolerance of it is 1e-6, and the sigmoid of less than 1e-7 below 0 is 0.5 in float32, not below.
LEAST_SCALE = 1e-2


def has_attention_masks(head: nn.Module) -> bool:
    """Return whether `head` has attention masks by mmdet's own code. The head of mmseg inherits it."""
    upstream = getattr(sys.modules.get(UPSTREAM), '__file__', None)
    methods = [getattr(head, name, None) for name in ('forward', '_forward_head')]
    # By the file of its code: a method put on the instance, or wrapped, is the user's even where it names mmdet's module.
    return upstream is not None and all(inspect.ismethod(method) and method.__code__.co_filename == upstream for method in methods)


class AttentionMasks:
    """Hold the masks of one run: True where a query does not attend to a cell, as the head gives them, of one attention head.

    Source: mmdet/models/dense_heads/mask2former_head.py (``_forward_head``). The masks after the last layer are not used, nor held.
    """

    def __init__(self, head: Any = None, followed: Tensor | None = None) -> None:
        self.head, self.followed = head, followed
        self.original: Any = getattr(head, '_forward_head', None)
        self.masks: list[Tensor] = []
        self.predictions: list[tuple[Tensor, Sequence[int]]] = []

    def forward_head(self, decoder_out: Tensor, mask_feature: Tensor, attn_mask_target_size: Sequence[int]) -> tuple[Tensor, ...]:
        cls_pred, mask_pred, attn_mask = self.original(decoder_out, mask_feature, attn_mask_target_size)
        if len(self.masks) == self.head.num_transformer_decoder_layers:
            return cls_pred, mask_pred, attn_mask
        heads = self.head.num_heads
        if self.followed is not None:
            start = sum(mask.shape[2] for mask in self.masks)
            mask = self.followed[:, :, start:start + attn_mask.shape[2]].to(attn_mask.device)
            attn_mask = mask[:, None].repeat(1, heads, 1, 1).flatten(0, 1)
        # A copy: mmdet 3.0.0 writes into the mask of a query that would attend to nothing.
        self.masks.append(attn_mask.view(cls_pred.shape[0], heads, cls_pred.shape[1], -1)[:, 0].clone())
        self.predictions.append((mask_pred, attn_mask_target_size))
        return cls_pred, mask_pred, attn_mask

    def outputs(self) -> tuple[Tensor, ...]:
        """Return the output of `SPEC` (N, Q, cells of all layers); none if the head has no attention masks."""
        return (torch.cat(self.masks, dim=2),) if self.masks else ()

    def evidence(self) -> dict[str, Tensor]:
        """Return the logits that decide (N, Q, cells), and how many cells each layer has, see `mmexport.checker.kinds.attention`."""
        if not self.masks:
            return {}
        # What matters is how near 0 they are, in units of the scale; 11 bits tell.
        deciding = [(F.interpolate(prediction, size, mode='bilinear', align_corners=False).flatten(2) / scale_of(prediction)).half()
                    for prediction, size in self.predictions]
        return {DECIDING: torch.cat(deciding, dim=2), CELLS: torch.tensor([part.shape[2] for part in deciding])}


def scale_of(prediction: Tensor) -> Tensor:
    """Return the scale of each query's logits (N, Q, 1): its largest, or the median query's if that is more.

    The rounding of a query depends on its own logits. The median is for queries whose terms cancel: of one picture, terms are alike.
    """
    largest = prediction.abs().amax(dim=(2, 3))
    return torch.maximum(largest, largest.median(dim=1, keepdim=True).values).clamp(min=LEAST_SCALE)[..., None]


@contextmanager
def attention_masks(head: nn.Module, wanted: bool, followed: Tensor | None) -> Iterator[AttentionMasks]:
    """Yield the masks of the runs inside the block.

    Args:
        wanted: whether they are an output; without it, nothing is held.
        followed: masks (N, Q, cells) that queries attend by instead of the head's own, or None.
    """
    if not wanted:
        yield AttentionMasks()
        return
    masks = AttentionMasks(head, followed)
    with override(head, '_forward_head', masks.forward_head):
        yield masks


class WithAttentionMasks(Adapter):
    """Add attention masks to the raw outputs of a mask classifier. Only heads of Mask2Former have them."""

    def __init__(self, model: nn.Module, outputs: str = 'final', normalize: bool = False) -> None:
        super().__init__(model, outputs, normalize)
        # Decided here, without patches: one of them replaces `forward`.
        self.attends = has_attention_masks(self.mask_head)

    @property
    def mask_head(self) -> Any:
        """Return the head of the model that gives masks. Each adapter has its own."""
        raise NotImplementedError

    def logits(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of classes and masks of the last layer. Each adapter has its own."""
        raise NotImplementedError

    @property
    def raw_specs(self) -> tuple[OutputSpec, ...]:
        return (*mask_specs(), SPEC) if self.attends else mask_specs()

    def raw(self, image: Tensor) -> tuple[Tensor, ...]:
        return self._run(image)[0]

    def run_with_evidence(self, image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        raw, attention = self._run(image)
        return raw, attention.evidence()

    def _run(self, image: Tensor) -> tuple[tuple[Tensor, ...], AttentionMasks]:
        with attention_masks(self.mask_head, self.attends, self.followed.get(ATTENTION)) as attention:
            logits = self.logits(image)
        return (*logits, *attention.outputs()), attention
