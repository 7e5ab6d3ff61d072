"""Lower one model to each format in turn."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from ..adapters import Adapter
from ..artifact import Artifact
from ..backends import Backend
from ..diagnosis import DiagnosisSession
from ..errors import LoweringError, MMExportError, last_line


def lower_all(backends: Sequence[Backend], lower: Callable[[Backend, Adapter, Tensor], Artifact], adapter: Adapter, example: Tensor,
              session: DiagnosisSession) -> tuple[list[Artifact], dict[str, LoweringError]]:
    """Return the artifacts, and by format the error of those that failed, which does not stop the others."""
    artifacts: list[Artifact] = []
    failed: dict[str, LoweringError] = {}
    for backend in backends:
        try:
            artifacts.append(lower(backend, adapter, example))
        except LoweringError as exc:
            failed[backend.name] = exc
        except MMExportError:
            raise
        except Exception as exc:  # Of a converter or its checker, in whatever class of its own.
            failed[backend.name] = LoweringError(f'{backend.name} failed: {type(exc).__name__}: {last_line(exc)}')
            failed[backend.name].__cause__ = exc
    for backend in backends:
        if backend.name in failed:
            session.on_lowering(backend, adapter, example, failed[backend.name])
    return artifacts, failed
