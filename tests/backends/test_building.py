"""Test how backends are built of a config's words."""
from __future__ import annotations

from typing import Any

import pytest

from mmexport.backends import Backend, build_backend
from mmexport.errors import ConfigError
from mmexport.registry import BACKENDS


@pytest.mark.parametrize(('spec', 'words'), [
    (dict(type='ONNX', opsset=17), r"ONNX has no option 'opsset' \(did you mean opset\?\); it has opset, dynamo, simplify, precision"),
    (dict(type='ONNX', opset='new'), "export.backends: .*'new'"),
    (dict(type='TorchScript', colour='red'), "TorchScript has no option 'colour'; it has ")])
def test_a_wrong_option_is_named(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_backend(spec)


def test_a_backend_that_takes_any_option_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(Backend):
        name = 'own'

        def __init__(self, **options: Any) -> None:
            self.options = options

    monkeypatch.setitem(BACKENDS.module_dict, 'Own', Own)
    backend = build_backend(dict(type='Own', anything=1))
    assert isinstance(backend, Own)
    assert backend.options == dict(anything=1)
