"""Test what is run again, what is not run at all, and beside what a file's time is put."""
from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmexport.checker.comparison import EAGER, Comparison
from mmexport.checker.samples import Sample
from mmexport.utils.progress import Progress
from mmexport.verification.verify import Verification
from mmexport.verification.verify_all import ArtifactVerifier

SAMPLES = [Sample('traced', torch.zeros(1, 3, 64, 64), {}, {}, {})]


@pytest.fixture
def verifier(monkeypatch: pytest.MonkeyPatch) -> ArtifactVerifier:
    monkeypatch.setattr('mmexport.verification.verify_all.typical_seconds', lambda adapter, image: 2.0)
    return ArtifactVerifier(SimpleNamespace(outputs='raw', choices=()), 1e-4, torch.device('cpu'), Progress(quiet=True))  # type: ignore[arg-type]


def test_after_a_closer_look_only_what_failed_is_checked_again(verifier: ArtifactVerifier, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []

    def verify(artifact: Any, samples: Any, *rest: Any) -> Verification:
        requested.append(artifact.backend)
        # Off in a pixel of a hundred, which eager's own noise explains once it has been looked at closely.
        row = Comparison('traced', 'logits', EAGER, 'pixels', 1e-4, max_rel=1e-3 if artifact.backend == 'onnx' else 1e-6, median=1e-6,
                         beyond=0.01 if artifact.backend == 'onnx' else 0.0, floor=0.02 if samples is closer else 0.0)
        return Verification(artifact.backend, dict(stale=None, rows=[row.as_dict()], vacuous={}, p50_s=1.0))

    closer = list(SAMPLES)
    monkeypatch.setattr('mmexport.verification.verify_all.verify', verify)
    monkeypatch.setattr('mmexport.verification.verify_all.recomputed_floors', lambda *args: closer)
    artifacts: list[Any] = [SimpleNamespace(backend=name, folder=Path('absent')) for name in ('torchscript', 'onnx')]
    checks, samples = verifier.verify(artifacts, SAMPLES, tmp_path, None)
    assert requested == ['torchscript', 'onnx', 'onnx']
    assert [check.passed for check in checks] == [True, True]
    assert samples is closer


def test_a_time_is_put_beside_one_that_eager_took_then(verifier: ArtifactVerifier, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    actual = dict(rows=[], stale=None, vacuous={})
    answers = iter([dict(actual, p50_s=1.0), actual])
    monkeypatch.setattr('mmexport.verification.verify_all.verify', lambda artifact, *rest: Verification(artifact.backend, next(answers)))
    monkeypatch.setattr('mmexport.verification.verify_all.recomputed_floors', lambda *args: None)
    artifacts: list[Any] = [SimpleNamespace(backend=name, folder=Path('absent')) for name in ('torchscript', 'onnx')]
    checks, _ = verifier.verify(artifacts, SAMPLES, tmp_path, None)
    assert [(check.over_eager, check.eager_s) for check in checks] == [(0.5, 2.0), (None, None)]
