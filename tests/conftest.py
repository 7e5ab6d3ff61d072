from __future__ import annotations

import contextlib
import logging
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

# mmengine imports it, and its first import on a machine writes a cache of its grammar; the process that starts the workers does it
# alone, for two that begin at once read what the other has half written (EOFError).
import yapf  # noqa: F401

from mmexport.backends.openvino.runner import open_openvino

os.environ.setdefault('OMP_NUM_THREADS', '2')
logging.disable(logging.WARNING)
# Before a test imports it with its telemetry, which forks the worker for each conversion.
with contextlib.suppress(ImportError):
    open_openvino()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a marked test wherever what it needs is present, and say what is missing where it is not."""
    from mmexport.compat import provide_mmcv_ext
    missing = {
        'gpu': None if torch.cuda.is_available() else 'no CUDA device here',
        'compiled_mmcv': None if provide_mmcv_ext() == 'compiled' else 'the installed mmcv has no compiled ops',
    }
    for item in items:
        for marker, reason in missing.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope='session', autouse=True)
def seeded_weights(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep slowly seeded weights in the folder that the workers of this run share."""
    from tests import shared_weights
    if 'PYTEST_XDIST_WORKER' in os.environ:
        shared_weights.folder = tmp_path_factory.getbasetemp().parent / 'seeded'


@pytest.fixture(scope='session', autouse=True)
def forked() -> Iterator[None]:
    """Start checker processes as forks of one that has imported torch, which is most of their time."""
    from tests.forked_checker import forked_checkers
    with forked_checkers():
        yield


@pytest.fixture(scope='module', autouse=True)
def types_of_traces() -> Iterator[None]:
    """Remove the classes that torch keeps of each module that was ever traced; a worker grows by gigabytes otherwise.

    Source: torch/testing/_internal/jit_utils.py (``clear_class_registry``), which torch's own tests call after each test.
    """
    yield
    torch._C._jit_clear_class_registry()
    torch.jit._recursive.concrete_type_store = torch.jit._recursive.ConcreteTypeStore()
    torch.jit._state._clear_class_state()


@pytest.fixture
def real_checker(forked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start checker processes as users do."""
    import subprocess

    from mmexport.verification import checker_process
    monkeypatch.setattr(checker_process, 'subprocess', subprocess)


@pytest.fixture(scope='session')
def photograph_file() -> Path:
    return Path(__file__).parent.parent / 'mmexport' / 'inputs' / 'chelsea.png'


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Make a package with a function, a class, and a second module that copied the function's binding."""
    package, copier = types.ModuleType('fakemm'), types.ModuleType('fakemm_user')
    exec('def op(x):\n    return x\nclass Head:\n    def forward(self, x):\n        return x\n'
         '    @staticmethod\n    def helper(x):\n        return x\n    @classmethod\n    def make(cls, x):\n        return cls.size * x\n'
         '    size = 1\n    nothing = None\nclass Child(Head):\n    size = 10\n', package.__dict__)
    copier.op = package.op  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'fakemm', package)
    monkeypatch.setitem(sys.modules, 'fakemm_user', copier)
    return package
