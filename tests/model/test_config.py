"""Errors of configs that cannot be read, in words."""
from __future__ import annotations

from pathlib import Path

import pytest

from mmexport.errors import SetupError
from mmexport.model.config import load_config


def test_a_fork_that_mmengine_does_not_find_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with onedl-mmengine and onedl-mmsegmentation: `mmseg` imports, and no distribution is named mmsegmentation."""
    file = tmp_path / 'config.py'
    file.write_text("_base_ = 'mmseg::fcn/fcn_r50.py'\n")
    monkeypatch.setattr('mmengine.config.config.is_installed', lambda package: False)
    with pytest.raises(SetupError, match='a distribution named mmsegmentation only; here mmseg is of .*: name the file in _base_ by its'):
        load_config(file)
