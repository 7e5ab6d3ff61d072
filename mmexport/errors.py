"""Define the errors that mmexport raises, and their exit codes.

    MMExportError                 exit code
    +-- InputError                2   a config, checkpoint, picture or option is wrong
    |   +-- CheckpointError
    |   +-- ConfigError
    |   +-- UnsupportedModelError     no adapter knows this architecture
    |   +-- EagerError                the unpatched model itself fails on its inputs
    +-- SetupError                3   a package is missing or has the wrong version
    |   +-- MissingOpError            a compiled mmcv op was called where there is none
    +-- PatchError                1   a patch names something that upstream does not have
    +-- LoweringError             1   a backend could not make the file
    +-- DeviceError               1   tensors would lie on the wrong device; see mmexport.device
    +-- VerificationError         1   the file could not be checked

Each message says what is wrong, where, and what to do next; the cause stays chained and is shown with ``--debug``.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


# The exit code after Ctrl-C: 128 and the number of the signal, as in a shell.
INTERRUPTED = 130


class MMExportError(Exception):
    """Explain an error in one line; the base class of what mmexport raises."""

    exit_code = 1


class InputError(MMExportError):
    """Report a config, checkpoint, picture or option that is wrong."""

    exit_code = 2


class CheckpointError(InputError):
    """Report a file that is no checkpoint, or none of this model."""


class ConfigError(InputError):
    """Report a key or a value of the config that cannot be used."""


class UnsupportedModelError(InputError):
    """Report an architecture that no adapter knows."""


class SetupError(MMExportError):
    """Report a package that is missing or has the wrong version."""

    exit_code = 3


class MissingOpError(SetupError, RuntimeError):
    """Report a compiled op of mmcv that was called where there is none."""


class PatchError(MMExportError):
    """Report a target of a patch that upstream does not have."""


class Fact(Enum):
    """Name what mmexport itself observed of a failure, for the diagnosis."""

    CRASH = 'the process ended'
    WRITES_INPUT = 'the file writes into its input'
    FIXED_SIZE = 'a size became a constant'
    OTHER_DTYPE = 'an output has another dtype'
    VERSIONS = 'the installed packages do not go together'


class LoweringError(MMExportError):
    """Report a failed lowering.

    Attributes:
        stack: the Python stack of the operator that failed in a converter.
        fact: what mmexport observed, where it made the error itself.
    """

    def __init__(self, words: str, stack: str | None = None, fact: Fact | None = None) -> None:
        super().__init__(words)
        self.stack, self.fact = stack, fact


class EagerError(InputError):
    """Report that the unpatched model itself fails on an input."""


class DeviceError(MMExportError):
    """Report tensors that would lie on the wrong device."""


class VerificationError(MMExportError):
    """Report a file that could not be checked."""


def causes(exc: BaseException) -> list[BaseException]:
    """Return the exception and those it was raised from, outermost first."""
    chain = [exc]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean X?)`` for the most similar known name; '' if none is."""
    close = get_close_matches(name, list(known), 1)
    return f' (did you mean {close[0]}?)' if close else ''


def similar_path(path: Path) -> str:
    """Return a `suggestion` of a path that does not exist, among those beside it."""
    return suggestion(str(path), map(str, path.parent.iterdir())) if path.parent.is_dir() else ''


def first_line(exc: BaseException) -> str:
    """Return the first line that is not empty: some exporters add advice or a stack of many lines."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip() not in ('', 'RuntimeError:')]
    return (lines or [type(exc).__name__])[0][:300]


def last_line(exc: BaseException) -> str:
    """Return the last line that is not empty, where C++ and TorchScript put the reason."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip() not in ('', 'RuntimeError:')]
    return (lines or [type(exc).__name__])[-1][:200]


def reason(exc: BaseException) -> str:
    """Return the `last_line` of an exception; of one without a message, as an assertion's, the file and the line that raised it."""
    frames = extract_tb(exc.__traceback__)
    if str(exc).strip() or not frames:
        return last_line(exc)
    return f"{'/'.join(Path(frames[-1].filename).parts[-3:])}:{frames[-1].lineno}: {frames[-1].line}"


@contextmanager
def eager_in_words(images: Mapping[str, Tensor], hint: bool = True) -> Iterator[None]:
    """Raise an `EagerError` that names `images` where the unpatched eager model fails on them. Any exception counts.

    Args:
        hint: whether another size can help.
    """
    try:
        yield
    except MMExportError:
        raise
    except Exception as exc:
        # An image of no size stands for pictures whose sizes are not known here.
        shapes = ', '.join(f'{name} {tuple(image.shape)}' if image.numel() else name for name, image in images.items())
        raise EagerError(f'the eager, unpatched model fails on its inputs ({shapes}) with {type(exc).__name__}: {reason(exc)}'
                         + ('. Other sizes: --shape, export.verify.shapes' if hint else '')) from exc
