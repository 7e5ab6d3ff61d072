"""Test how pictures of users are named."""
from __future__ import annotations

import shutil
from pathlib import Path

from mmexport.inputs.real_image import PACKAGED, picture_files
from mmexport.inputs.shapes import SAME, TRACED


def test_no_picture_takes_the_name_of_an_input_that_is_made(tmp_path: Path) -> None:
    """A picture called traced.png once replaced the traced input."""
    names = [TRACED, SAME, 'windows', 'photograph', 'dark', '128x160']
    for name in names:
        shutil.copy(PACKAGED, tmp_path / f'{name}.png')
    (tmp_path / 'other').mkdir()
    shutil.copy(PACKAGED, tmp_path / 'other' / 'dark.png')
    files = picture_files([str(tmp_path), str(tmp_path / 'other')])
    assert sorted(files) == sorted([*(f'{name}.png' for name in names), 'dark 2.png'])
    assert not set(files) & set(names)
