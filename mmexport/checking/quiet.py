"""ONNX Runtime and OpenVINO without their telemetry: what they would send, and what they would write into the home folder for it."""
from __future__ import annotations

import os
import sys
from typing import Any


def onnxruntime() -> Any:
    """The module. Unless it is told before its first session, it keeps a device id and a database under ``~/.cache/Microsoft``."""
    # Two names: releases differ in which one they read (microsoft/onnxruntime, pull requests 27379 and 29843).
    for name in ('ORT_DISABLE_TELEMETRY', 'ORT_TELEMETRY_DISABLED'):
        os.environ.setdefault(name, '1')
    import onnxruntime as module
    module.disable_telemetry_events()
    return module


def openvino() -> Any:
    """The module. Its import alone sends an event and writes ``~/intel``; without the package for that it has a stub."""
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
