"""Name the revision of mmexport that makes a row of a sweep."""
from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path


def revision() -> str:
    """Return the commit of mmexport's repository, with a digest of uncommitted changes.

    It is the version if mmexport is installed without a repository.
    """
    from .. import __version__
    root = Path(__file__).parents[2]
    top = _git(root, 'rev-parse', '--show-toplevel')
    if not top or Path(top).resolve() != root.resolve():
        return f'mmexport {__version__}'
    # A patch that is in no commit yet is on all the same.
    new = _git(root, 'ls-files', '--others', '--exclude-standard', 'mmexport', 'patches').split()
    changed = _git(root, 'diff', 'HEAD') + ''.join(f'{name} {(root / name).read_text(errors="replace")}' for name in new)
    return _git(root, 'describe', '--always') + (f'-dirty-{hashlib.sha256(changed.encode()).hexdigest()[:8]}' if changed else '')


def _git(root: Path, *command: str) -> str:
    try:
        return subprocess.run(['git', *command], cwd=root, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ''
