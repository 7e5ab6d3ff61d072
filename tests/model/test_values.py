"""Test that a wrong value of the ``export`` section is refused with its own key and what is expected."""
from __future__ import annotations

from typing import Any

import pytest
from mmengine.config import Config

from mmexport.errors import ConfigError
from mmexport.model.config import export_section


@pytest.mark.parametrize(('section', 'words'), [
    (dict(verify=dict(shapes=[256, 320])), r'export.verify.shapes is \[256, 320\]; expected a list of \(H, W\), as'),
    (dict(verify=dict(shapes='256x320')), "export.verify.shapes is '256x320'; "),
    (dict(verify=dict(shapes=[(256, 0)])), 'export.verify.shapes is '),
    (dict(verify=dict(batch=0)), 'export.verify.batch is 0; expected a whole number of at least 1$'),
    (dict(verify=dict(noises=-1)), 'export.verify.noises is -1; '),
    (dict(verify=dict(tolerance=dict(scale=2))), 'export.verify.tolerance.scale is 2; expected a number between 0 and 1$'),
    (dict(inputs=dict(shape=512)), r'export.inputs.shape is 512; expected \(H, W\)'),
    (dict(inputs=dict(shape=(3, 512, 512))), r'export.inputs.shape is \(3, 512, 512\); '),
    (dict(inputs=dict(batch='many')), "export.inputs.batch is 'many'; "),
    (dict(inputs=dict(dynamic=['hieght'])), "export.inputs.dynamic is .'hieght'.; expected some of 'batch', 'height', 'width'"),
    (dict(inputs=dict(img_shape=1)), 'export.inputs.img_shape is 1; expected True or False$')])
def test_a_wrong_value_names_its_key_alone(section: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        export_section(Config(dict(export=section)))


def test_values_that_fit_are_taken() -> None:
    section = export_section(Config(dict(export=dict(inputs=dict(shape=(2, 4, 64, 96), dynamic=('batch',), batch=2),
                                                     verify=dict(shapes=[(256, 320), [1, 3, 64, 64]], batch=1, noises=0)))))
    assert section['verify']['shapes'] == [(256, 320), [1, 3, 64, 64]] and section['inputs']['batch'] == 2
