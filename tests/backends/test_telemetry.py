"""Check that no telemetry is sent and none is set up."""
from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mmexport.backends.onnx.runner import open_onnxruntime
from mmexport.backends.openvino.runner import open_openvino


def test_onnxruntime_telemetry_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime
    told: list[bool] = []
    monkeypatch.setattr(onnxruntime, 'disable_telemetry_events', lambda: told.append(True))
    for name in ('ORT_DISABLE_TELEMETRY', 'ORT_TELEMETRY_DISABLED'):
        monkeypatch.delenv(name, raising=False)
    assert open_onnxruntime() is onnxruntime
    assert told == [True]
    assert [os.environ.get(name) for name in ('ORT_DISABLE_TELEMETRY', 'ORT_TELEMETRY_DISABLED')] == ['1', '1']
    # Somebody's own choice stays.
    monkeypatch.setenv('ORT_DISABLE_TELEMETRY', '0')
    open_onnxruntime()
    assert os.environ['ORT_DISABLE_TELEMETRY'] == '0'


def test_openvino_telemetry_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name which notes what it could import; openvino itself cannot be imported twice."""
    note = "import sys\nseen = sys.modules.get('openvino_telemetry', 'absent')\n"
    (tmp_path / 'openvino' / 'tools' / 'ovc').mkdir(parents=True)
    for folder in ('openvino', 'openvino/tools', 'openvino/tools/ovc'):
        (tmp_path / folder / '__init__.py').write_text(note)
    for name in [name for name in sys.modules if name.split('.')[0] in ('openvino', 'openvino_telemetry')]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, 'path', [str(tmp_path), *sys.path])
    try:
        module = open_openvino()
        assert module.__file__ == str(tmp_path / 'openvino' / '__init__.py')
        assert (module.seen, module.tools.ovc.seen) == (None, None)
        assert 'openvino_telemetry' not in sys.modules
    finally:
        for name in [name for name in sys.modules if name.split('.')[0] == 'openvino']:
            del sys.modules[name]


def test_imported_telemetry_package_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    import openvino
    telemetry = ModuleType('openvino_telemetry')
    monkeypatch.setitem(sys.modules, 'openvino_telemetry', telemetry)
    assert open_openvino() is openvino
    assert sys.modules['openvino_telemetry'] is telemetry


def test_imported_openvino_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module without `tools`, which would be imported once more otherwise."""
    module = ModuleType('openvino')
    monkeypatch.setitem(sys.modules, 'openvino', module)
    for name in [name for name in sys.modules if name.startswith(('openvino.', 'openvino_telemetry'))]:
        monkeypatch.delitem(sys.modules, name)
    assert open_openvino() is module
    assert 'openvino_telemetry' not in sys.modules


def test_telemetry_imported_before_openvino_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'openvino').mkdir()
    (tmp_path / 'openvino' / '__init__.py').write_text("import sys\nseen = sys.modules.get('openvino_telemetry', 'absent')\n")
    for name in [name for name in sys.modules if name.split('.')[0] == 'openvino']:
        monkeypatch.delitem(sys.modules, name)
    telemetry = ModuleType('openvino_telemetry')
    monkeypatch.setitem(sys.modules, 'openvino_telemetry', telemetry)
    monkeypatch.setattr(sys, 'path', [str(tmp_path), *sys.path])
    try:
        assert open_openvino().seen is telemetry
        assert sys.modules['openvino_telemetry'] is telemetry
    finally:
        sys.modules.pop('openvino', None)
