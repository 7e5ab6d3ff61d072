"""Test that wrong options are refused before the model is built, and the name that was meant is suggested."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mmexport import Exporter
from mmexport.errors import MMExportError
from mmexport.model.config import levels_of
from mmexport.sweep.plan import config_root
from tests.tiny import tiny


@pytest.mark.parametrize(('section', 'words'), [
    (dict(task='Segmentatoin'), "export.task is 'Segmentatoin' (did you mean Segmentation"),
    (dict(patches=['Upsampel']), "names 'Upsampel', which is not registered (did you mean Upsample"),
    (dict(inputs=dict(image='not_there.png')), 'not_there.png'),
    (dict(inputs=dict(shape=(1, 3, 0, 10))), 'shape'),
])
def test_wrong_options_are_refused_before_the_model(section: dict[str, Any], words: str, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('mmexport.export.exporter.load_model', lambda *_, **__: pytest.fail('the model was built'))
    with pytest.raises(MMExportError) as refused:
        Exporter(tiny('fcn', **section), work_dir=tmp_path / 'out').run()
    assert words in str(refused.value)


def test_levels_and_packages_have_suggestions() -> None:
    with pytest.raises(MMExportError, match="export.outputs is 'finl' .did you mean final"):
        levels_of(dict(outputs='finl'))
    with pytest.raises(MMExportError, match='--packages mmsg .did you mean mmseg'):
        config_root('mmsg')
