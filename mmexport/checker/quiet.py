"""Import ONNX Runtime and OpenVINO without their telemetry, and without its files in the home folder."""
from __future__ import annotations

import os
import sys
from typing import Any


def onnxruntime() -> Any:
    """Return the module onnxruntime with telemetry off.

    Otherwise its first session writes a device id and a database under ``~/.cache/Microsoft``.
    """
    # Two names: releases differ in which one they read (microsoft/onnxruntime, pull requests 27379 and 29843).
    for name in ('ORT_DISABLE_TELEMETRY', 'ORT_TELEMETRY_DISABLED'):
        os.environ.setdefault(name, '1')
    import onnxruntime as module
    module.disable_telemetry_events()
    return module


def openvino() -> Any:
    """Return the module openvino, imported without its telemetry package, for which it has a stub.

    Its import alone sends an event and writes ``~/intel``.
    """
    hidden = 'openvino' not in sys.modules and 'openvino_telemetry' not in sys.modules
    if hidden:
        sys.modules['openvino_telemetry'] = None  # type: ignore[assignment]
    try:
        import openvino as module
        if hidden:
            import openvino.tools.ovc  # noqa: F401
    finally:
        if hidden:
            del sys.modules['openvino_telemetry']
    return module
