"""What every adapter has: a model inside, tensors in and out, and what the checker has to know about them."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import UnsupportedModelError
from ..registry import ADAPTERS
from .preprocess import Preprocess

AXES = ('batch', 'channel', 'height', 'width')


@dataclass(frozen=True)
class OutputSpec:
    """One output of a lowered file, as its manifest describes it.

    `kind` tells the checker which rule applies (see `mmexport.checking.comparison`): ``queries`` and ``pixels`` are continuous, with
    that as the unit in which jumps are counted; ``labels`` and ``panoptic`` are label maps; ``instance`` belongs to a row group.
    """

    name: str
    dtype: str
    axes: tuple[str, ...]
    kind: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Adapter(nn.Module):
    """Wraps a model for export.

    Input: image ``(N, C, H, W)``, C mostly 3, float32, normalised as the data_preprocessor does; with ``normalize`` the raw picture,
    0..255 in the config's own channel order, and the normalisation is part of the graph. Output: the tensors of `specs`, in order.
    """

    task: ClassVar[str]
    # Whether it may be chosen by what the model has; else only ``export.task`` can name it.
    automatic: ClassVar[bool] = True

    def __init__(self, model: nn.Module, outputs: str = 'final', normalize: bool = False) -> None:
        super().__init__()
        self.model = model
        self.outputs = outputs
        self.preprocess = Preprocess.of(model, normalize)
        self.guard = InputGuard(channels=self.preprocess.channels)
        self.eval()

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        """Whether this adapter knows the architecture, by what the model has, never by its name."""
        raise NotImplementedError

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        raise NotImplementedError

    @property
    def channels(self) -> int:
        """Of the input: as many as the data_preprocessor has means."""
        return self.preprocess.channels

    @property
    def classes(self) -> list[str]:
        return [str(name) for name in (getattr(self.model, 'dataset_meta', None) or {}).get('classes', ())]

    @property
    def num_classes(self) -> int:
        raise NotImplementedError

    def raw(self, image: Tensor) -> tuple[Tensor, ...]:
        """The network's own outputs, before resizing and decisions; `image` is normalised."""
        raise NotImplementedError

    def final(self, raw: tuple[Tensor, ...], image: Tensor) -> tuple[Tensor, ...]:
        """Decisions at the size of `image`, from tensor operations only."""
        raise NotImplementedError

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        image = self.preprocess(self.guard(image))
        return self.decide(self.raw(image), image)

    def decide(self, raw: tuple[Tensor, ...], image: Tensor) -> tuple[Tensor, ...]:
        """The outputs of `specs`, from the network's own; `image` is normalised."""
        return raw if self.outputs == 'raw' else self.final(raw, image)

    def watch(self, image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Run the network eagerly; return `raw` and the evidence that only shows while it runs (PointRend's choice of points)."""
        return self.raw(image), {}

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, seen: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the checker needs to judge a difference in ``final`` outputs: margins, edges of thresholds, and what `watch` saw."""
        return seen

    def padding_decides(self, raw: tuple[Tensor, ...], image: Tensor, height: int, width: int) -> Tensor | None:
        """Pixels (N, height, width) of ``final`` in which what lies beyond `height` and `width` has a say; None where it never has.

        OpenMMLab cuts the padding off before it decides; a file, which is not told of padding, cannot.
        """
        return None

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        """OpenMMLab's data samples, as ``test_step`` or ``predict`` returns them -> the ``final`` outputs by name."""
        raise NotImplementedError

    def notes(self) -> dict[str, Any]:
        """What the user of the file must do outside it (sliding windows, say); goes into the manifest."""
        return {}


@torch.jit.script_if_tracing
def _refuse_what_was_not_exported(image: Tensor, sides: list[int], channels: int) -> Tensor:
    if image.dim() != 4:
        raise ValueError('mmexport: expected an image tensor (N, 3, H, W), got another number of axes')
    if image.size(1) != channels:
        raise ValueError('mmexport: expected an image tensor with ' + str(channels) + ' channels')
    if image.dtype != torch.float32:
        raise ValueError('mmexport: expected a floating point image (float32), normalised as the manifest says')
    for axis, side in enumerate(sides):
        if side > 0 and image.size(axis) != side:
            raise ValueError('mmexport: an axis has another size than the one it was exported with, and was not declared dynamic')
    return image


class InputGuard(nn.Module):
    """Stands at the door of the graph, so that a wrong input is refused in words instead of being computed wrongly."""

    def __init__(self, shape: Sequence[int] = (), dynamic: Sequence[str] = AXES, channels: int = 3) -> None:
        super().__init__()
        self.channels = int(shape[1]) if shape else channels
        self.sides = [-1 if axis in dynamic else int(side) for axis, side in zip(AXES, shape, strict=False)]

    def forward(self, image: Tensor) -> Tensor:
        return _refuse_what_was_not_exported(image, self.sides, self.channels)


def build_adapter(model: nn.Module, task: str | None = None, outputs: str = 'final', normalize: bool = False) -> Adapter:
    """The adapter for `task` (a registered class name), or the first one that knows the architecture.

    Raises:
        UnsupportedModelError: none does.
    """
    ADAPTERS.import_from_location()
    known = ADAPTERS.module_dict
    if task is not None:
        if task not in known:
            raise UnsupportedModelError(f'export.task is {task!r}; there are {", ".join(known)}')
        if not known[task].matches(model):
            raise UnsupportedModelError(f'export.task is {task!r}, which does not fit a {type(model).__name__}; leave it out to have it '
                                        'inferred')
        return known[task](model, outputs, normalize)  # type: ignore[no-any-return]
    for cls in known.values():
        if cls.automatic and cls.matches(model):
            return cls(model, outputs, normalize)  # type: ignore[no-any-return]
    raise UnsupportedModelError(f'no adapter knows {type(model).__name__} (there are {", ".join(known)}); write one, register it '
                                'with @ADAPTERS.register_module() and name its module in custom_imports')
