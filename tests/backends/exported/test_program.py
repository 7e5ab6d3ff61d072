"""Check what is kept of a program beside its graph."""
from __future__ import annotations

import sys
import warnings

import pytest
import torch
from torch import Tensor, nn

from mmexport.backends.exported.program import exported_program, warned

AXES = ('batch', 'height', 'width')


class Talkative(nn.Module):
    """Warn as the code of a user does, and call what warns about itself."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, image: Tensor) -> Tensor:
        warnings.warn('a line of the user', UserWarning, stacklevel=1)
        warnings.warn_explicit('of a package', UserWarning, torch.__file__, 1)
        return image * self.scale


def test_exported_program_keeps_user_warnings(capfd: pytest.CaptureFixture[str]) -> None:
    model = Talkative().eval()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        actual = exported_program(model, torch.zeros(1, 3, 128, 128), AXES)  # type: ignore[arg-type]
    line = next(number for number, text in enumerate(open(__file__), 1) if "warn('a line" in text)
    assert warned(actual) == [dict(file=__file__, line=line, message='a line of the user')]
    # Formats that share the program have it too.
    assert warned(exported_program(model, torch.zeros(1, 3, 128, 128), AXES)) == warned(actual)  # type: ignore[arg-type]
    sys.stderr.flush()
    assert capfd.readouterr().err == ''
