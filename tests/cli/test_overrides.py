"""Test how values of --cfg-options are read."""
from __future__ import annotations

import pytest

from mmexport.cli.overrides import parse_options
from mmexport.errors import ConfigError


@pytest.mark.parametrize(('text', 'value'), [
    ('4', 4), ('final', 'final'), ('[a, b]', ['a', 'b']), ('1,2', [1, 2]), ('None', None), ('true', True),
    ('dict(scale=1e-4)', {'scale': 1e-4}),
    ("[dict(type='ONNX', opset=18), dict(type='TorchScript')]", [{'type': 'ONNX', 'opset': 18}, {'type': 'TorchScript'}]),
    ("{'a': (1, dict(b=[2]))}", {'a': (1, {'b': [2]})}),
])
def test_value(text: str, value: object) -> None:
    assert parse_options([f'export.x={text}']) == {'export.x': value}


@pytest.mark.parametrize('text', ['dict(scale=f(1))', 'dict(', '[1, (2]', "dict(__import__('os'))", 'dict(**x)'])
def test_a_value_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match='the value cannot be read'):
        parse_options([f'export.x={text}'])
