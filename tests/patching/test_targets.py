"""Check which patches a name stands for, where their targets are, and what is said of each."""
from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from mmexport.compat import provide_mmcv_ext
from mmexport.errors import ConfigError, PatchError
from mmexport.patching import Applied, Patch, patched, resolve
from mmexport.patching.targets import _locate, in_use
from mmexport.registry import PATCHES
from tests.fakemm import Constant, patch_of

provide_mmcv_ext()


def test_missing_target_names_the_installed_version() -> None:
    import mmdet
    import mmdet.models.layers.msdeformattn_pixel_decoder  # noqa: F401
    target = 'mmdet.models.layers.msdeformattn_pixel_decoder.MSDeformAttnPixelDecoder.gone'
    with pytest.raises(PatchError, match=f'mmdet {mmdet.__version__}'), patched([patch_of(target)]):
        pass


def test_a_misspelt_package_asked_for_by_name_is_an_error() -> None:
    with pytest.raises(PatchError, match='misspelt'), patched([patch_of('not_a_package.op')]):
        pass


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(ConfigError, match='NoSuchPatch'), patched(['NoSuchPatch']):
        pass


@pytest.mark.parametrize(('installed', 'words'), [
    ({'mmcv': '2.1.0', 'mmdet': '3.2.0'}, None),
    ({'mmcv-lite': '2.1.0+cpu', 'mmdet': '3.2.0+local'}, None),
    ({'torch': '2.13.0'}, None),
    ({'mmcv-lite': '2.2.0+cpu', 'torch': '2.13.0'}, 'mmcv 2.2.0'),
    ({'mmcv': '2.0.1', 'mmdet': '3.3.0'}, 'mmcv 2.0.1, mmdet 3.3.0')])
def test_untried_names_other_versions(installed: dict[str, str], words: str | None, upstream: Any) -> None:
    with patched([Constant(dict)]) as applied:
        pass
    actual = applied[0].untried(installed)
    assert actual == (words and f'Constant was checked on mmcv 2.1.0, mmdet 3.2.0, here is {words}')
    assert replace(applied[0], skipped='not for this machine').untried(installed) is None


@pytest.fixture
def registered() -> Iterator[None]:
    """Register a patch for the time of a test."""
    @PATCHES.register_module()
    class Scaling(Patch):
        """Scale it.

        By a factor.
        """

        targets = ('fakemm.op', 'fakemm.Head.forward')
        upstream = 'fakemm 1'

        def __init__(self, by: int = 2) -> None:
            self.by = by

        def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
            by = self.by if target == 'fakemm.op' else -self.by
            return lambda *args: by * args[-1]

    yield
    del PATCHES.module_dict['Scaling']


def test_resolve_takes_names_dicts_and_objects(upstream: Any, registered: None) -> None:
    everything = resolve('auto')
    assert [type(patch).__name__ for patch in everything] == list(PATCHES.module_dict)
    assert [type(patch).__name__ for patch in resolve(['auto'])] == list(PATCHES.module_dict)
    one, other = resolve(['Scaling', patch_of('fakemm.op')])
    assert (type(one).__name__, one.by, type(other).__name__) == ('Scaling', 2, 'Doubling')  # type: ignore[attr-defined]
    assert [type(patch).__name__ for patch in resolve([patch_of('fakemm.op'), Constant(dict)])] == ['Doubling', 'Constant']
    dicts = resolve([dict(type='Scaling', by=5)])
    assert [patch.by for patch in dicts] == [5]  # type: ignore[attr-defined]
    # Named before 'auto', it is taken as it was named, and once.
    both = resolve([dict(type='Scaling', by=5), 'auto'])
    assert sorted(type(patch).__name__ for patch in both) == sorted(PATCHES.module_dict)
    assert [patch.by for patch in both if type(patch).__name__ == 'Scaling'] == [5]  # type: ignore[attr-defined]


def test_unknown_names_are_told_with_the_known_ones(registered: None) -> None:
    with pytest.raises(ConfigError, match=r"^export.patches names 'Other', which is not registered; there are .*, Scaling\. A patch "):
        resolve([dict(type='Other')])


def test_patched_row_describes_the_patch(upstream: Any, registered: None) -> None:
    with patched('Scaling') as rows:
        assert upstream.op(3) == 6
        assert upstream.Head().forward(3) == -6
    assert rows == [Applied('Scaling', 'Scale it.', 'fakemm 1', ('fakemm.op', 'fakemm.Head.forward'))]
    assert rows[0].calls == {'fakemm.op': 1, 'fakemm.Head.forward': 1}


def test_patch_without_docstring_has_an_empty_reason(upstream: Any) -> None:
    class Silent(Constant):
        pass

    with patched([Silent(dict)]) as rows:
        assert rows[0].why == ''


def test_nothing_installed_names_all_targets() -> None:
    words = r'^Doubling is for nopack.op, nopack.other, and nothing of that is installed; is a name misspelt\?$'
    with pytest.raises(PatchError, match=words), patched([patch_of('nopack.op', 'nopack.other')]):
        pass


def test_in_use_follows_imported_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    package, plain = types.ModuleType('fakemm'), types.ModuleType('fakemm.part')
    package.__path__ = []
    package.here = 1  # type: ignore[attr-defined]
    assert not in_use('fakemm.here')
    monkeypatch.setitem(sys.modules, 'fakemm', package)
    monkeypatch.setitem(sys.modules, 'fakemm.part', plain)
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None if name == 'fakemm.gone' else 'found')
    # A submodule that nothing has imported; a name that is neither there nor a module; one of a plain module.
    assert not in_use('fakemm.later.Head.forward')
    assert in_use('fakemm.here')
    assert in_use('fakemm.gone.Head')
    assert in_use('fakemm.part.gone')


@pytest.mark.parametrize(('target', 'words'), [
    ('fakemm.gone', r"^fakemm.gone does not exist in fakemm 1\.5: module 'fakemm' has no attribute 'gone'\. The patch was written for "
                    'another version; leave it out with export.patches, or report it$'),
    ('nowhere.part.gone', '^nowhere.part.gone does not exist in nowhere; leave the patch out with export.patches$')])
def test_missing_targets_are_told_in_words(target: str, words: str, upstream: Any) -> None:
    upstream.__version__ = '1.5'
    with pytest.raises(PatchError, match=words):
        _locate(target)


def test_missing_requirement_of_a_target_is_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'needs_more.py').write_text('import not_there\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PatchError, match=r'^needs_more.op: importing it needs not_there, which is not installed$'):
        _locate('needs_more.op')
