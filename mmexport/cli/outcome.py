"""Return the exit code of an error or a report; `mmexport.errors` defines those of errors."""
from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..compat.torch_versions import in_words, version_conflict
from ..errors import INTERRUPTED, InputError, MMExportError, SetupError, last_line

if TYPE_CHECKING:
    from ..report.facts import Report


def guarded(work: Callable[[], int], debug: bool = False) -> int:
    """Run `work`; turn an error into one line and its exit code."""
    _quiet_upstream()
    try:
        return work()
    except KeyboardInterrupt:
        print('interrupted; earlier results are as they were', file=sys.stderr)
        return INTERRUPTED
    except Exception as exc:  # The outermost handler: a user gets one line, and the trace with --debug.
        if debug:
            traceback.print_exc()
        words, code = _in_words(exc)
        print(words, file=sys.stderr)
        return code


def exit_code(report: Report, unverified_is_fine: bool) -> int:
    """Return 0 where the report passes, or nothing was checked and that was asked for; else 1.

    Return 3 if packages that do not go together are the only reason.
    """
    if report.passed is None:
        return 0 if unverified_is_fine else MMExportError.exit_code
    return 0 if report.passed else SetupError.exit_code if report.only_conflicts else MMExportError.exit_code


def _in_words(exc: Exception) -> tuple[str, int]:
    """Return the message of an error, and its exit code."""
    if isinstance(exc, MMExportError):
        return f'{type(exc).__name__}: {exc}', exc.exit_code
    if isinstance(exc, OSError):
        return f'{type(exc).__name__}: {exc}', InputError.exit_code
    if isinstance(exc, ImportError):
        if isinstance(exc, ModuleNotFoundError) and not version_conflict(exc):
            return (f'SetupError: {exc}: pip install the package that has it; mmexport doctor shows what mmexport itself needs',
                    SetupError.exit_code)
        return f'SetupError: {in_words(str(exc))}', SetupError.exit_code
    return f'unexpected {type(exc).__name__}: {last_line(exc)} (--debug shows where)', MMExportError.exit_code


def _quiet_upstream() -> None:
    """Hide deprecation notices of torch and OpenMMLab, which users of mmexport cannot act on."""
    warnings.filterwarnings('ignore')
    logging.disable(logging.WARNING)
