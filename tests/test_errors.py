"""Test that the checker, which runs without mmexport, has the exit codes of mmexport's errors."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from mmexport import errors
from mmexport.checker import exit_codes

ROOT = Path(__file__).parents[1]


def test_the_exit_codes_are_the_same() -> None:
    assert exit_codes.PASSED == 0
    assert exit_codes.FAILED == errors.MMExportError.exit_code == errors.LoweringError.exit_code
    assert exit_codes.WRONG_INPUT == errors.InputError.exit_code
    assert exit_codes.ENVIRONMENT == errors.SetupError.exit_code


@pytest.mark.parametrize('page', ['README.md', 'mmexport/cli/main.py'])
def test_pages_and_help_name_every_exit_code(page: str) -> None:
    codes = {exit_codes.PASSED, errors.INTERRUPTED, *(error.exit_code for error in every_error(errors.MMExportError))}
    line = re.search(r'Exit codes: [^\n]*(\n[^\n]+)?', (ROOT / page).read_text())
    assert line is not None
    assert {int(number) for number in re.findall(r'\b\d+(?= \w)', line.group())} == codes


def every_error(base: type[errors.MMExportError]) -> list[type[errors.MMExportError]]:
    return [base, *(error for child in base.__subclasses__() for error in every_error(child))]


def test_an_assertion_without_a_message_is_named_by_its_line(tmp_path: Path) -> None:
    layer = tmp_path / 'ops' / 'layer.py'
    layer.parent.mkdir()
    layer.write_text('def forward(batch):\n    assert batch == 1\n')
    scope: dict[str, Any] = {}
    exec(compile(layer.read_text(), str(layer), 'exec'), scope)
    with pytest.raises(errors.EagerError, match=r'with AssertionError: \w+/ops/layer.py:2: assert batch == 1. Other sizes'), \
            errors.eager_in_words({'traced': torch.zeros(2, 3, 8, 8)}):
        scope['forward'](2)
