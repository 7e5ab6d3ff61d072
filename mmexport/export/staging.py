"""Write results into a temporary folder beside the user's, and move them to their place."""
from __future__ import annotations

import ctypes
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import InputError

# Only names that mmexport writes: a work dir may hold other files of the user.
STAGING, ASIDE = '.mmexport-tmp-', '.mmexport-old-'


def default_work_dir(config: str | Path | None) -> Path:
    """Return ``work_dirs/CONFIG``."""
    return Path('work_dirs') / (Path(config).stem if config else 'export')


def check_work_dir(work_dir: Path) -> None:
    """Raise if results cannot be written; leave nothing behind.

    Raises:
        InputError: it is a file, or a folder in which nothing can be written.
    """
    existing = next(folder for folder in (work_dir, *work_dir.absolute().parents) if folder.exists())
    if not existing.is_dir():
        raise InputError(f'--work-dir {work_dir}: {existing} is a file, not a folder')
    try:
        # Tried by writing: permission bits do not show it for root, and /proc refuses what they allow.
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as exc:
        raise InputError(f'--work-dir {work_dir}: nothing can be written into {existing}: {exc.strerror or exc}') from exc


@contextmanager
def staging_dir(work_dir: Path) -> Iterator[Path]:
    """Create a temporary folder beside the results, on the same file system; remove it, and those of killed runs."""
    work_dir.mkdir(parents=True, exist_ok=True)
    _tidy(work_dir)
    folder = Path(tempfile.mkdtemp(prefix=STAGING, suffix=f'-{os.getpid()}', dir=work_dir))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tidy(work_dir: Path) -> None:
    """Remove the folders of killed runs, and restore a result that one had moved aside."""
    for leftover in work_dir.glob(f'{STAGING}*'):
        if not _alive(leftover.name):
            shutil.rmtree(leftover, ignore_errors=True)
    for aside in work_dir.glob(f'{ASIDE}*'):
        place = work_dir / aside.name.removeprefix(ASIDE)
        if place.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(place)


def _alive(name: str) -> bool:
    try:
        os.kill(int(name.rsplit('-', 1)[-1]), 0)
    except ProcessLookupError:
        return False
    except (ValueError, PermissionError):
        return True
    return True


def publish(new: Path, place: Path) -> None:
    """Replace the folder `place` by `new`, atomically where the system can exchange folders. Elsewhere `place` is missing for a moment."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        new.rename(place)
    elif _exchange(new, place):
        shutil.rmtree(new)
    else:  # No atomic exchange on this system: the old folder is renamed first.
        aside = place.with_name(f'{ASIDE}{place.name}')
        shutil.rmtree(aside, ignore_errors=True)
        place.rename(aside)
        new.rename(place)
        shutil.rmtree(aside)


def _exchange(one: Path, other: Path) -> bool:
    """Call renameat2(RENAME_EXCHANGE), if the C library and the file system have it."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here, exchange = -100, 2
    return bool(renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def link(place: Path, target: str) -> None:
    """Make `place` a relative link to `target` atomically; a copy if the file system has no links."""
    if place.is_symlink() and os.readlink(place) == target:
        return
    draft = place.with_name(f'.{place.name}.{os.getpid()}')
    draft.unlink(missing_ok=True)
    try:
        draft.symlink_to(target)
    except OSError:
        shutil.copyfile(place.parent / target, draft)
    draft.replace(place)


def write_json(path: Path, content: Any) -> None:
    """Write a file and rename it, so that a reader never sees half of it."""
    draft = path.with_name(f'.{path.name}.{os.getpid()}')
    draft.write_text(json.dumps(content, indent=2) + '\n')
    draft.replace(path)
