"""One model, the formats in turn."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from .adapters import Adapter
from .artifact import Artifact
from .backends import Backend
from .diagnosis import Consultation
from .errors import LoweringError


def lower_all(backends: Sequence[Backend], lower: Callable[[Backend, Adapter, Tensor], Artifact], adapter: Adapter, example: Tensor,
              consultation: Consultation) -> tuple[list[Artifact], dict[str, str]]:
    """What was made, and by format why it was not. One that cannot hold the model does not cost the user the others.

    Raises:
        LoweringError: none can.
    """
    artifacts: list[Artifact] = []
    failed: list[tuple[Backend, LoweringError]] = []
    for backend in backends:
        try:
            artifacts.append(lower(backend, adapter, example))
        except LoweringError as exc:
            failed.append((backend, exc))
    for backend, error in failed:
        consultation.on_lowering(backend, adapter, example, error)
    if not artifacts:
        said = '; '.join(str(error) for _, error in failed)
        raise LoweringError('\n'.join([said, *consultation.lines()])) from failed[-1][1]
    return artifacts, {backend.name: str(error) for backend, error in failed}
