"""Test options that take several values, as users of argparse's nargs='+' wrote them."""
from __future__ import annotations

import pytest

from mmexport.cli.options import repeat_names

SEVERAL = {'--backend', '--cfg-options'}


@pytest.mark.parametrize(('given', 'expected'), [
    ('c.py x.pth --backend onnx openvino --quiet', 'c.py x.pth --backend onnx --backend openvino --quiet'),
    ('--backend=onnx openvino', '--backend=onnx --backend openvino'),
    ('--cfg-options a=1 b=-2 --device cpu c.py', '--cfg-options a=1 --cfg-options b=-2 --device cpu c.py'),
    ('--backend onnx -- openvino', '--backend onnx -- openvino'),
    ('--backend --quiet', '--backend --quiet'),
    ('--shape 64 96', '--shape 64 96')])
def test_the_name_is_repeated_before_each_value(given: str, expected: str) -> None:
    assert repeat_names(given.split(), SEVERAL) == expected.split()
