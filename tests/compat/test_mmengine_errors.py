"""Raise the errors of the installed mmengine, and look at what they are taken for."""
from __future__ import annotations

from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.registry import MODELS

from mmexport.compat.mmengine_errors import missing_package, unknown_type
from mmexport.errors import ConfigError, SetupError
from mmexport.model.build import build_model
from mmexport.model.config import load_config


def test_a_type_in_no_registry_is_known_by_its_traceback() -> None:
    with pytest.raises(KeyError) as raised:
        MODELS.build(dict(type='NotThere'))
    assert unknown_type(raised.value) is raised.value
    # A message of other code is not read.
    assert unknown_type(KeyError('NotThere is not in the mmengine::model registry')) is None


@pytest.mark.parametrize(('model', 'error', 'remedy'), [
    (dict(type='NotThere'), ConfigError, "custom_imports=dict(imports=['your.module'])"),
    (dict(type='mmaction.Recognizer3D'), SetupError, 'pip install mmaction2'),
    (dict(type='EncoderDecoder', backbone=dict(type='mmaction.ResNet3d'), decode_head=dict(type='FCNHead')), SetupError,
     'pip install mmaction2'),
])
def test_the_remedy_follows_from_the_config(model: dict[str, object], error: type[Exception], remedy: str) -> None:
    with pytest.raises(error, match=r'No installed package has it: ') as raised:
        build_model(Config(dict(model=model, default_scope='mmseg')))
    assert remedy in str(raised.value)


def test_a_key_that_a_model_misses_is_the_fault_of_the_config() -> None:
    class Reading:
        def __init__(self, settings: dict[str, int]) -> None:
            settings['registry of mmaction']

    MODELS.register_module(name='ReadingOfTheTest', module=Reading, force=True)
    with pytest.raises(ConfigError, match='the model cannot be built from this config'):
        build_model(Config(dict(model=dict(type='mmengine.ReadingOfTheTest', settings={}))))


def test_a_file_that_a_model_reads_while_it_is_built_is_told() -> None:
    class Teaching:
        def __init__(self) -> None:
            raise FileNotFoundError('teacher.pth can not be found.')

    MODELS.register_module(name='TeachingOfTheTest', module=Teaching, force=True)
    with pytest.raises(ConfigError, match='reads a file while it is built, which failed: FileNotFoundError: teacher.pth can not be found'):
        build_model(Config(dict(model=dict(type='mmengine.TeachingOfTheTest'))))


@pytest.mark.parametrize(('error', 'words'), [
    (RuntimeError('lap is not installed,    please install it by: pip install lap'), 'not installed: lap is not installed, please install'),
    (NotImplementedError('please install fairscale'), 'needs what is not installed: please install fairscale'),
    (AssertionError(), 'cannot be built from this config: AssertionError: no reason given'),
    (RuntimeError('no installation_embed here'), 'cannot be built from this config: RuntimeError: no installation_embed here'),
    (RuntimeError('sizes do not agree'), 'cannot be built from this config: RuntimeError: sizes do not agree')])
def test_a_package_that_a_model_asks_for_while_it_is_built_is_told(error: Exception, words: str) -> None:
    class Asking:
        def __init__(self) -> None:
            raise error

    MODELS.register_module(name='AskingOfTheTest', module=Asking, force=True)
    with pytest.raises(ConfigError, match=words):
        build_model(Config(dict(model=dict(type='mmengine.AskingOfTheTest'))))


@pytest.mark.parametrize('text', ["_base_ = 'mmaction::recognition/x.py'\n", "custom_imports = dict(imports=['mmaction.models'])\n"])
def test_a_config_of_a_missing_package_is_an_error_of_the_setup(text: str, tmp_path: Path) -> None:
    place = tmp_path / 'config.py'
    place.write_text(text)
    with pytest.raises(SetupError, match='needs mmaction, which is not installed: pip install mmaction2'):
        load_config(place)


def test_another_missing_module_is_not_taken_for_a_package(tmp_path: Path) -> None:
    assert missing_package(ModuleNotFoundError("No module named 'mmaction'", name='my_project'), ['mmaction']) is None
    place = tmp_path / 'config.py'
    place.write_text("custom_imports = dict(imports=['my_mmaction_fork'])\n")
    with pytest.raises(ConfigError, match='imports what is not there'):
        load_config(place)
