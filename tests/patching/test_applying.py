from __future__ import annotations

import sys
import types
from collections import Counter
from typing import Any

import pytest

from mmexport.compat import provide_mmcv_ext
from mmexport.errors import PatchError
from mmexport.patching import Environment, Patch, patched
from mmexport.patching.targets import _counted
from tests.fakemm import Constant, patch_of

provide_mmcv_ext()


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


def test_patched_restores_after_an_error_while_applying(upstream: Any) -> None:
    original = upstream.op
    with pytest.raises(PatchError), patched([patch_of('fakemm.op'), *[patch_of('fakemm.Head.gone')]]):
        pass
    assert upstream.op is original
    with pytest.raises(PatchError, match='does not exist'), patched([patch_of('fakemm.op', 'fakemm.Head.gone')]):
        pass
    assert upstream.op is original


def test_unused_patch_is_a_row_with_a_reason() -> None:
    with patched([patch_of('turtledemo.clock.tick')]) as rows:
        assert rows[0].skipped == 'the model does not use it'


def test_check_gives_the_reason() -> None:
    class Never(Patch):
        """Refuse to apply."""

        targets = ('os.path.join',)
        upstream = 'any'

        def check(self, env: Environment) -> str | None:
            return None if env.compiled_ops else 'no compiled ops'

    import os
    join = os.path.join
    with patched([Never()], Environment(versions={'mmcv_ops': 'stand-in'})) as rows:
        assert rows[0].skipped == 'no compiled ops'
        assert os.path.join is join


def test_importing_patches_changes_nothing() -> None:
    from mmcv.ops import MultiScaleDeformableAttention
    forward = MultiScaleDeformableAttention.forward
    import mmexport.patches  # noqa: F401
    assert MultiScaleDeformableAttention.forward is forward


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
