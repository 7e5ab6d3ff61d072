from __future__ import annotations

from importlib import metadata

import pytest

from mmexport.compat import fork_configs
from mmexport.compat.fork_configs import configs_of_forks


def test_a_fork_has_the_configs_of_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where onedl-mmsegmentation is installed in the place of mmsegmentation."""
    from mmengine.config.utils import MODULE2PACKAGE

    def version(name: str) -> str:
        if name == 'mmsegmentation':
            raise metadata.PackageNotFoundError(name)
        return '1.0'

    before = dict(MODULE2PACKAGE)
    monkeypatch.setattr(fork_configs.metadata, 'version', version)
    monkeypatch.setattr(fork_configs.metadata, 'packages_distributions', lambda: {'mmseg': ['onedl-mmsegmentation'], 'mmdet': ['mmdet']})
    with configs_of_forks():
        assert MODULE2PACKAGE['mmseg'] == 'onedl-mmsegmentation'
        assert MODULE2PACKAGE['mmdet'] == before['mmdet']
    assert before == MODULE2PACKAGE


def test_packages_of_the_usual_names_are_left_alone() -> None:
    from mmengine.config.utils import MODULE2PACKAGE
    before = dict(MODULE2PACKAGE)
    with configs_of_forks():
        assert MODULE2PACKAGE['mmseg'] == before['mmseg']
