"""Test that the checker, which runs without mmexport, has the exit codes of mmexport's errors."""
from __future__ import annotations

from mmexport import errors
from mmexport.checker import exit_codes


def test_the_exit_codes_are_the_same() -> None:
    assert exit_codes.PASSED == 0
    assert exit_codes.FAILED == errors.MMExportError.exit_code == errors.LoweringError.exit_code
    assert exit_codes.WRONG_INPUT == errors.InputError.exit_code
    assert exit_codes.ENVIRONMENT == errors.SetupError.exit_code
