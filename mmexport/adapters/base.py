"""Define the base class of adapters: a model, its input and outputs, and what the checker must know of them."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..checker.kinds import add_kind, kind_of
from ..errors import ConfigError
from .data_samples import DataSamples
from .guard import InputGuard
from .objectives import Objective
from .preprocess import Preprocess
from .specs import IMAGE, InputSpec, OutputSpec


class Adapter(DataSamples, nn.Module):
    """Wrap a model for export.

    Inputs: those of `input_specs`; mostly one image ``(N, C, H, W)``, C mostly 3, float32, normalised as the data_preprocessor does;
    with ``normalize`` the raw picture, 0..255 in the config's own channel order, which the graph normalises. Outputs: those of `specs`.
    """

    task: ClassVar[str]
    # Whether it may be chosen by what the model has; else only ``export.task`` can name it.
    automatic: ClassVar[bool] = True
    # The inputs of a file, in order. If it is not one picture alone, see `inputs_of`.
    input_specs: ClassVar[tuple[InputSpec, ...]] = (IMAGE,)
    # Distributions whose version can change a result, for manifests and `mmexport doctor`.
    packages: ClassVar[tuple[str, ...]] = ()
    # Modules of kinds of output that the checker does not have, by name.
    kinds: ClassVar[Mapping[str, Path]] = {}

    def __init__(self, model: nn.Module, outputs: str = 'final', normalize: bool = False) -> None:
        super().__init__()
        self.model, self.outputs = model, outputs
        self.preprocess = Preprocess.of(model, normalize)
        self.guard = InputGuard(channels=self.preprocess.channels, inputs=[
            (spec, [self.preprocess.channels if name == 'channel' and not number else -1 for name in spec.axes])
            for number, spec in enumerate(self.input_specs)])
        # Whether `forward` gives raw outputs behind the decisions, see `with_raw`; whether a backend writes a graph with both.
        self.raw_too, self.check_raw = False, False
        self.followed: Mapping[str, Tensor] = {}
        for name, file in self.kinds.items():
            add_kind(name, file)
        self.eval()

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        """Return whether this adapter knows the architecture, by the model's attributes, never by its name."""
        raise NotImplementedError

    @classmethod
    def variant(cls, option: str) -> type[Adapter] | None:
        """Return the subclass for an option of the config (``img_shape``, ``paste``); None if the task has none."""
        return None

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        raise NotImplementedError

    @property
    def raw_specs(self) -> tuple[OutputSpec, ...]:
        """Return the specs of the raw outputs; () if an adapter does not name them."""
        return self.specs if self.outputs == 'raw' else ()

    @property
    def hidden_specs(self) -> tuple[OutputSpec, ...]:
        """Return the specs of outputs that are checked and not delivered: behind decisions all raw ones, behind raw ones choices."""
        return self.raw_specs if self.outputs != 'raw' else self.raw_specs[len(self.specs):]

    @property
    def channels(self) -> int:
        """Return the number of input channels: of the data_preprocessor's means, or else of the network."""
        return self.preprocess.channels

    @property
    def classes(self) -> list[str]:
        """Return the names of the model's classes; [] if none are known.

        Raises:
            ConfigError: there is another number of names.
        """
        names = [str(name) for name in (getattr(self.model, 'dataset_meta', None) or {}).get('classes', ())]
        count = max(self.num_classes, self.class_count)
        if names and count and len(names) not in (self.num_classes, count):
            raise ConfigError(f'there are {len(names)} class names ({", ".join(names[:3])}, ...) and the model has {count} classes: give '
                              "the dataset's metainfo=dict(classes=(...)) in the config, or a checkpoint with its own")
        return names

    @property
    def num_classes(self) -> int:
        raise NotImplementedError

    def inputs_of(self, picture: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors of `input_specs` for a picture (N, C, H, W). Sizes, scenes and branches are searched on pictures."""
        return (picture,)

    def normalized(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return what `raw` takes: the first input goes through `preprocess`."""
        return self.preprocess(inputs[0]), *inputs[1:]

    def network_inputs(self, picture: Tensor) -> tuple[Tensor, ...]:
        """Return what `raw` takes for a picture."""
        return self.normalized(*self.inputs_of(picture))

    def raw(self, *inputs: Any, **_: Any) -> tuple[Tensor, ...]:
        """Return the raw outputs, before resizing and decisions, of what `normalized` returns."""
        raise NotImplementedError

    def final(self, raw: Any, *inputs: Any, **_: Any) -> tuple[Tensor, ...]:
        """Return decisions at the size of the picture, from tensor operations only."""
        raise NotImplementedError

    def whole(self, image: Tensor) -> Any:
        return self.raw(image)  # All layers that have weights, for seeding.

    def forward(self, image: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        inputs = self.normalized(*self.guard(image, *others))
        raw = self.raw(*inputs)
        return self.decide(raw, *inputs) + (self.hidden(raw) if self.raw_too else ())

    def run_on(self, picture: Tensor) -> tuple[Tensor, ...]:
        """Call `forward` with the inputs for a copy of `picture`. A model may write into its input."""
        outputs: tuple[Tensor, ...] = self(*self.inputs_of(picture.clone()))
        return outputs

    def guard_inputs(self, picture: Tensor, dynamic: Sequence[str], **limits: Any) -> None:
        """Set `guard` to the sizes of the inputs for `picture`. The axes `dynamic` stay open within `limits`."""
        inputs = [(spec, tuple(tensor.shape)) for spec, tensor in zip(self.input_specs, self.inputs_of(picture), strict=True)]
        self.guard = InputGuard(tuple(picture.shape), dynamic, inputs=inputs, **limits)

    @contextmanager
    def unguarded(self) -> Iterator[None]:
        """Take sizes beyond those that were checked, for a diagnosis that tries others."""
        guard = self.guard
        self.guard = guard.without_ranges()
        try:
            yield
        finally:
            self.guard = guard

    @contextmanager
    def following(self, choices: Mapping[str, Tensor]) -> Iterator[None]:
        """Take `choices`, raw outputs by name (see `mmexport.checker.kinds.places`), instead of the model's own inside the block."""
        before, self.followed = self.followed, choices
        try:
            yield
        finally:
            self.followed = before

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the names of raw outputs that are choices, which `following` can replace."""
        return tuple(spec.name for spec in self.raw_specs if getattr(kind_of(spec.kind), 'CHOICE', False))

    @property
    def free_choices(self) -> tuple[str, ...]:
        """Return those that eager makes anew where a floor is computed, see `mmexport.checker.kinds`."""
        return tuple(spec.name for spec in self.raw_specs if getattr(kind_of(spec.kind), 'FREE', False))

    @contextmanager
    def with_raw(self) -> Iterator[tuple[OutputSpec, ...]]:
        """Let `forward` return the outputs of `hidden_specs` after the others; yield the specs of all of them.

        A fault in a class that never wins does not show in decisions. A ``final`` output of the same name is the raw one enlarged.
        """
        names = {spec.name for spec in self.specs}
        self.raw_too = bool(self.hidden_specs) and not any(spec.name in names for spec in self.hidden_specs)
        try:
            yield self.specs + (self.hidden_specs if self.raw_too else ())
        finally:
            self.raw_too = False

    def decide(self, raw: tuple[Tensor, ...], *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of `specs`, computed from the raw ones."""
        return raw[:len(self.specs)] if self.outputs == 'raw' else self.final(raw, *inputs)

    def hidden(self, raw: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the outputs of `hidden_specs` among the raw ones."""
        return tuple(raw)[len(raw) - len(self.hidden_specs):]

    def run_with_evidence(self, *inputs: Any, **_: Any) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Run the network eagerly; return `raw` and the evidence that only shows while it runs (PointRend's choice of points)."""
        return self.raw(*inputs), {}

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, recorded: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return margins and thresholds of ``final`` outputs for the checker. `recorded` is of `run_with_evidence`."""
        return recorded

    @property
    def class_count(self) -> int:
        """Return how many classes `decided` chooses among; 0 if the outputs hold no decisions."""
        return 0

    def decided(self, raw: tuple[Tensor, ...], image: Tensor) -> frozenset[int]:
        """Return the classes that win somewhere on `image`."""
        return frozenset()

    def make_objective(self, raw: tuple[Tensor, ...], image: Tensor, target_classes: set[int], generator: torch.Generator) -> Objective:
        """Choose targets for `target_classes` from `raw`, and return the objective that leads there; see `inputs.decisive`."""
        raise NotImplementedError

    def decides_enough(self, raw: tuple[Tensor, ...], image: Tensor) -> bool:
        """Return whether the decisions on a scene are as many as seeded weights should give."""
        return True

    def remarks(self) -> tuple[str, ...]:
        return ()  # Lines for the report, of what eager did.

    def notes(self) -> dict[str, Any]:
        """Return what the user of the file must do outside it. The manifest lists it; sliding windows are an example."""
        return {}
