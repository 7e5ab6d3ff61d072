"""Set the guard of a model's files, and lower it to each format in turn."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..adapters import Adapter
from ..artifact import Artifact
from ..backends import Backend
from ..compat.torch_versions import raise_version_conflict
from ..diagnosis import DiagnosisSession
from ..errors import LoweringError, MMExportError, last_line
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
    adapter.guard_inputs(torch.empty(tuple(shape)), dynamic, ranges=ranges_of(shapes, dynamic) if shapes else {},
                         multiple_of=rules.multiple_of, minimum=min(rules.minimum, *shape[2:]))


def lower_all(backends: Sequence[Backend], lower: Callable[[Backend, Adapter, Tensor], Artifact], adapter: Adapter, example: Tensor,
              session: DiagnosisSession) -> tuple[list[Artifact], dict[str, LoweringError]]:
    """Return the artifacts, and by format the error of those that failed. An error does not stop the other formats.

    Raises:
        SetupError: the installed packages do not go together.
    """
    artifacts: list[Artifact] = []
    failed: dict[str, LoweringError] = {}
    for backend in backends:
        try:
            artifacts.append(lower(backend, adapter, example))
        except LoweringError as exc:
            raise_version_conflict(exc)
            failed[backend.name] = exc
        except MMExportError:
            raise
        except Exception as exc:  # A converter or its checker may raise any exception.
            raise_version_conflict(exc)
            failed[backend.name] = LoweringError(f'{backend.name} failed: {type(exc).__name__}: {last_line(exc)}')
            failed[backend.name].__cause__ = exc
    for backend in backends:
        if backend.name in failed:
            session.on_lowering(backend, adapter, example, failed[backend.name])
    return artifacts, failed
