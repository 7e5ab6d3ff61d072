from __future__ import annotations

import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from mmexport.compat import provide_mmcv_ext
from mmexport.errors import ConfigError, PatchError
from mmexport.patching import Applied, Environment, Patch, _counted, _in_use, _locate, patched, resolve
from mmexport.registry import PATCHES

provide_mmcv_ext()


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A package with a function, a class, and a second module that copied the function's binding."""
    package, copier = types.ModuleType('fakemm'), types.ModuleType('fakemm_user')
    exec('def op(x):\n    return x\nclass Head:\n    def forward(self, x):\n        return x\n'
         '    @staticmethod\n    def helper(x):\n        return x\n    @classmethod\n    def make(cls, x):\n        return cls.size * x\n'
         '    size = 1\n    nothing = None\nclass Child(Head):\n    size = 10\n', package.__dict__)
    copier.op = package.op  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'fakemm', package)
    monkeypatch.setitem(sys.modules, 'fakemm_user', copier)
    return package


def patch_of(*names: str) -> Patch:
    class Doubling(Patch):
        """Double it."""

        targets = names
        upstream = 'fakemm 1'

        def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args: original(*args) * 2

    return Doubling()


def test_patched_replaces_copied_bindings_too(upstream: Any) -> None:
    with patched([patch_of('fakemm.op')]):
        assert upstream.op(3) == 6
        assert sys.modules['fakemm_user'].op(3) == 6
    assert upstream.op(3) == 3
    assert sys.modules['fakemm_user'].op is upstream.op


def test_patched_restores_methods_statics_and_inherited(upstream: Any) -> None:
    before = dict(vars(upstream.Head))
    with patched([patch_of('fakemm.Head.forward', 'fakemm.Head.helper', 'fakemm.Child.forward')]):
        assert upstream.Head().forward(3) == 6
        assert upstream.Head.helper(3) == 6
        assert upstream.Child().forward(3) == 12
    assert dict(vars(upstream.Head)) == before
    assert 'forward' not in vars(upstream.Child)


def test_a_module_imported_meanwhile_gets_the_original_back(upstream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original, late = upstream.op, types.ModuleType('fakemm_late')
    with patched([patch_of('fakemm.op')]):
        late.op = upstream.op  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, 'fakemm_late', late)
    assert late.op is original  # type: ignore[attr-defined]


def test_class_methods_stay_class_methods(upstream: Any) -> None:
    before = dict(vars(upstream.Head))
    with patched([patch_of('fakemm.Head.make')]):
        assert upstream.Head.make(3) == 6
        assert upstream.Child.make(3) == 60
    assert dict(vars(upstream.Head)) == before
    assert upstream.Child.make(3) == 30


def test_an_attribute_that_is_none_comes_back(upstream: Any) -> None:
    with patched([patch_of('fakemm.Head.nothing')]):
        assert upstream.Head.nothing is not None
    assert vars(upstream.Head)['nothing'] is None


def test_patched_restores_after_error(upstream: Any) -> None:
    original = upstream.op
    with pytest.raises(ZeroDivisionError), patched([patch_of('fakemm.op')]):
        raise ZeroDivisionError
    assert upstream.op is original


def test_patched_restores_after_error_half_way_through_putting_on(upstream: Any) -> None:
    original = upstream.op
    with pytest.raises(PatchError), patched([patch_of('fakemm.op'), *[patch_of('fakemm.Head.gone')]]):
        pass
    assert upstream.op is original
    with pytest.raises(PatchError, match='does not exist'), patched([patch_of('fakemm.op', 'fakemm.Head.gone')]):
        pass
    assert upstream.op is original


def test_missing_target_names_the_installed_version() -> None:
    import mmdet
    import mmdet.models.layers.msdeformattn_pixel_decoder  # noqa: F401
    target = 'mmdet.models.layers.msdeformattn_pixel_decoder.MSDeformAttnPixelDecoder.gone'
    with pytest.raises(PatchError, match=f'mmdet {mmdet.__version__}'), patched([patch_of(target)]):
        pass


def test_unused_patch_is_a_row_with_a_reason() -> None:
    with patched([patch_of('turtledemo.clock.tick')]) as rows:
        assert rows[0].skipped == 'the model does not use it'


def test_a_misspelt_package_asked_for_by_name_is_an_error() -> None:
    with pytest.raises(PatchError, match='misspelt'), patched([patch_of('not_a_package.op')]):
        pass


def test_check_gives_the_reason() -> None:
    class Never(Patch):
        """Never."""

        targets = ('os.path.join',)
        upstream = 'any'

        def check(self, env: Environment) -> str | None:
            return None if env.compiled_ops else 'no compiled ops'

    import os
    join = os.path.join
    with patched([Never()], Environment(versions={'mmcv_ops': 'stand-in'})) as rows:
        assert rows[0].skipped == 'no compiled ops'
        assert os.path.join is join


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(ConfigError, match='NoSuchPatch'), patched(['NoSuchPatch']):
        pass


def test_importing_patches_changes_nothing() -> None:
    from mmcv.ops import MultiScaleDeformableAttention
    forward = MultiScaleDeformableAttention.forward
    import mmexport.patches  # noqa: F401
    assert MultiScaleDeformableAttention.forward is forward


class Constant(Patch):
    """Give one object for a target, as it is."""

    targets = ('fakemm.op',)
    upstream = 'mmcv 2.1.0, mmdet 3.2.0'

    def __init__(self, given: Any) -> None:
        self.given = given

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return self.given  # type: ignore[no-any-return]


def test_calls_of_a_function_are_counted(upstream: Any) -> None:
    with patched([patch_of('fakemm.op', 'fakemm.Head.forward')]) as applied:
        assert not applied[0].acted
        upstream.op(1), upstream.op(2), upstream.Head().forward(3)
    assert applied[0].acted
    assert applied[0].calls == {'fakemm.op': 2, 'fakemm.Head.forward': 1}
    assert applied[0].as_dict() == dict(name='Doubling', why='Double it.', upstream='fakemm 1', skipped=None, calls=3,
                                        targets=('fakemm.op', 'fakemm.Head.forward'))


def test_what_is_no_function_counts_as_called(upstream: Any) -> None:
    with patched([Constant(dict)]) as applied:
        assert upstream.op is dict
    assert applied[0].calls == {'fakemm.op': 1}
    # Of what was there before, anything but a rise would be a fall.
    calls = Counter({'fakemm.op': 4})
    assert _counted(dict, calls, 'fakemm.op') is dict
    assert calls == {'fakemm.op': 5}


@pytest.mark.parametrize('given', [types.SimpleNamespace(__module__='fakemm_patch'), (3).__add__])
def test_the_module_of_a_replacement_keeps_it(given: Any, upstream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method of a number has no `__module__` at all."""
    patching, late = types.ModuleType('fakemm_patch'), types.ModuleType('fakemm_late')
    patching.mine = late.op = given  # type: ignore[attr-defined]
    with patched([Constant(given)]):
        monkeypatch.setitem(sys.modules, 'fakemm_patch', patching)
        monkeypatch.setitem(sys.modules, 'fakemm_late', late)
    assert late.op is upstream.op
    assert (patching.mine is given) == hasattr(given, '__module__')


def test_entries_that_are_no_modules_are_passed_over(upstream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'fakemm_nothing', object())  # type: ignore[arg-type]
    with patched([patch_of('fakemm.op')]):
        assert upstream.op(3) == 6
    assert upstream.op(3) == 3


@pytest.mark.parametrize(('installed', 'words'), [
    ({'mmcv': '2.1.0', 'mmdet': '3.2.0'}, None),
    ({'mmcv-lite': '2.1.0+cpu', 'mmdet': '3.2.0+local'}, None),
    ({'torch': '2.13.0'}, None),
    ({'mmcv-lite': '2.2.0+cpu', 'torch': '2.13.0'}, 'mmcv 2.2.0'),
    ({'mmcv': '2.0.1', 'mmdet': '3.3.0'}, 'mmcv 2.0.1, mmdet 3.3.0')])
def test_untried_names_other_versions(installed: dict[str, str], words: str | None, upstream: Any) -> None:
    with patched([Constant(dict)]) as applied:
        pass
    found = applied[0].untried(installed)
    assert found == (words and f'Constant was checked on mmcv 2.1.0, mmdet 3.2.0, here is {words}')
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
    assert not _in_use('fakemm.here')
    monkeypatch.setitem(sys.modules, 'fakemm', package)
    monkeypatch.setitem(sys.modules, 'fakemm.part', plain)
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None if name == 'fakemm.gone' else 'found')
    # A submodule that nothing has imported; a name that is neither there nor a module; one of a plain module.
    assert not _in_use('fakemm.later.Head.forward')
    assert _in_use('fakemm.here')
    assert _in_use('fakemm.gone.Head')
    assert _in_use('fakemm.part.gone')


@pytest.mark.parametrize(('target', 'words'), [
    ('fakemm.gone', r"^fakemm.gone does not exist in fakemm 1\.5: module 'fakemm' has no attribute 'gone'\. The patch was written for "
                    'another version; leave it out with export.patches, or report it$'),
    ('nowhere.part.gone', '^nowhere.part.gone does not exist in nowhere$')])
def test_missing_targets_are_told_in_words(target: str, words: str, upstream: Any) -> None:
    upstream.__version__ = '1.5'
    with pytest.raises(PatchError, match=words):
        _locate(target)


def test_missing_requirement_of_a_target_is_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'needs_more.py').write_text('import not_there\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PatchError, match=r'^needs_more.op: importing it needs not_there, which is not installed$'):
        _locate('needs_more.op')
