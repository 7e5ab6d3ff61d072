"""Test what is said before minutes go into a model."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mmexport import Exporter
from mmexport.errors import ConfigError
from tests.tiny import seeded, tiny


@pytest.mark.parametrize(('inputs', 'words'), [
    (dict(shape=(1, 3, 0, 64)), r'export.inputs.shape is \(1, 3, 0, 64\); expected .* of at least 1'),
    (dict(shape=(64,)), r'export.inputs.shape is \(64,\); expected \(H, W\) or \(N, C, H, W\)'),
    (dict(shape=(1, 3, 161, 160)), 'dynamic has height, and no input .* varies it from 161'),
])
def test_impossible_size_is_refused_before_building(inputs: dict[str, Any], words: str, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('mmexport.export.exporter.load_model', lambda *args: pytest.fail('the model was built'))
    with pytest.raises(ConfigError, match=words):
        Exporter(tiny('fcn', inputs=inputs), work_dir=tmp_path).run()
    assert not any(tmp_path.iterdir())


def test_a_model_traced_below_64_takes_its_own_size(tmp_path: Path) -> None:
    """Sizes are searched from 64 on, and that was taken for the smallest that the model takes."""
    cfg = tiny('fcn')
    cfg.merge_from_dict({'export.inputs.shape': [32, 48], 'export.outputs': 'raw'})
    report, = Exporter(cfg, None, tmp_path, model=seeded('fcn')).run()
    assert report.passed, report.reasons
    assert report.artifacts[0].manifest['inputs'][0]['minimum'] == 32
