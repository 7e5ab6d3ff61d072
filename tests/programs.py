"""Mark tests that need an exported program with open sizes, which torch 2.7 and older do not make."""
from __future__ import annotations

import pytest

from mmexport.backends.exported.program import unavailable

needs_program = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
