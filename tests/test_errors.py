"""Test that the checker, which runs without mmexport, has the exit codes of mmexport's errors."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

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
