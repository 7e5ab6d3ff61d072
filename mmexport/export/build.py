"""Set the guard of a model's files, and lower it to each format in turn."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ..adapters import Adapter
from ..artifact import Artifact
from ..backends import Backend
from ..compat.torch_versions import conflict_of
from ..diagnosis import DiagnosisSession
from ..errors import ConfigError, Fact, LoweringError, MMExportError, SetupError, last_line
from ..inputs.shapes import ranges_of
from ..verification.reference import Reference


def guard_tried_sizes(adapter: Adapter, shape: Sequence[int], dynamic: Sequence[str], reference: Reference) -> None:
    """Let files take the sizes between those that were tried. The multiples are those that eager takes.

    Args:
        shape: (N, C, H, W) of the traced input.
        dynamic: the axes that stay open.
    """
    rules, shapes = reference.plan.rules, [tuple(sample.image.shape) for sample in reference.samples]
    # The search begins at 64; a smaller traced size is one that eager takes too.
    ranges = {**ranges_of(shapes, dynamic), **_own_ranges(adapter, reference)} if shapes else {}
    adapter.guard_inputs(torch.empty(tuple(shape)), dynamic, ranges=ranges,
                         multiple_of=rules.multiple_of, minimum=min(rules.minimum, *shape[2:]))


def _own_ranges(adapter: Adapter, reference: Reference) -> dict[str, tuple[int, int]]:
    """Return the sizes that were tried of the axes in `InputSpec.ranges`, by name.

    Raises:
        ConfigError: an axis had one size in all inputs, or one that its spec does not have.
    """
    if not any(spec.ranges for spec in adapter.input_specs):
        return {}
    tried: dict[str, tuple[int, int]] = {}
    every = [adapter.inputs_of(sample.image) for sample in reference.samples]
    for number, spec in enumerate(adapter.input_specs):
        for name, (low, high) in spec.ranges.items():
            sizes = [int(inputs[number].shape[spec.axes.index(name)]) for inputs in every]
            if min(sizes) == max(sizes) or min(sizes) < low or max(sizes) > high:
                raise ConfigError(f'axis {name} of {spec.name} is open from {low} to {high}, and {type(adapter).__name__}.inputs_of made '
                                  f'inputs with {", ".join(map(str, sorted(set(sizes))))}: give several sizes in that range')
            tried[name] = min(sizes), max(sizes)
    return tried


def lower_all(backends: Sequence[Backend], lower: Callable[[Backend, Adapter, Tensor], Artifact], adapter: Adapter, example: Tensor,
              session: DiagnosisSession) -> tuple[list[Artifact], dict[str, LoweringError]]:
    """Return the artifacts, and by format the error of those that failed. An error does not stop the other formats.

    Raises:
        SetupError: no format was made, and the installed packages do not go together.
    """
    artifacts: list[Artifact] = []
    failed: dict[str, LoweringError] = {}
    for backend in backends:
        try:
            artifacts.append(lower(backend, adapter, example))
        except MMExportError as exc:
            if not isinstance(exc, LoweringError) and conflict_of(exc) is None:
                raise
            failed[backend.name] = _failure(backend, exc)
        except Exception as exc:  # A converter or its checker may raise any exception.
            failed[backend.name] = _failure(backend, exc)
    conflicts = [error for error in failed.values() if error.fact is Fact.VERSIONS]
    if conflicts and not artifacts:
        raise SetupError(str(conflicts[0])) from conflicts[0]
    for backend in backends:
        if backend.name in failed and failed[backend.name] not in conflicts:
            session.on_lowering(backend, adapter, example, failed[backend.name])
    return artifacts, failed


def in_words(failed: Mapping[str, LoweringError]) -> dict[str, str]:
    """Return the message by format."""
    return {name: str(error) for name, error in failed.items()}


def conflicting(failed: Mapping[str, LoweringError]) -> tuple[str, ...]:
    """Return the formats for which the installed packages do not go together."""
    return tuple(name for name, error in failed.items() if error.fact is Fact.VERSIONS)


def _failure(backend: Backend, exc: Exception) -> LoweringError:
    """Return the error as one of lowering; `Fact.VERSIONS` marks one of the environment, which is no fault of the model."""
    if conflict := conflict_of(exc):
        error = LoweringError(str(conflict), fact=Fact.VERSIONS)
    elif isinstance(exc, LoweringError):
        return exc
    else:
        error = LoweringError(f'{backend.name} failed: {type(exc).__name__}: {last_line(exc)}')
    error.__cause__ = exc
    return error
