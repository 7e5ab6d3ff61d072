"""Test what Inductor's arithmetic is helped on with: the same answers, and an end."""
import time

import pytest
import sympy
import torch
from torch._inductor import sizevars
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from mmexport.backends.aotinductor import internals
from mmexport.backends.aotinductor.internals import masks_compared_by_torch, multiplied_out, sums_multiplied_out

SIZE, OTHER = sympy.symbols('s0 s1', integer=True, positive=True)
LANE, ROW = sympy.symbols('d2 d1', integer=True, nonnegative=True)


def stride(index: sympy.Expr, variable: sympy.Symbol) -> sympy.Expr:
    """Call what Inductor's C++ code generation calls; its cache would return what was computed before."""
    sizevars.stride_at_vec_range.cache_clear()
    sizevars.simplify_index_in_vec_range.cache_clear()
    return sizevars.stride_at_vec_range(index, variable, 16)


@pytest.mark.parametrize(('index', 'expected'), [
    (SIZE * OTHER * ROW + LANE, 1),
    (SIZE * (ROW + 2 * LANE) + OTHER, 2 * SIZE),
    (SIZE * (OTHER + 1) * (LANE + 3) - SIZE * OTHER * LANE, SIZE),
    (ROW * SIZE + FloorDiv(LANE, 32), 0),
    (ModularIndexing(LANE, 1, 64) + OTHER ** 2, 1),
    (FloorDiv(SIZE + 3, 4) * LANE, FloorDiv(SIZE + 3, 4)),
])
def test_strides_are_those_of_sympy(index, expected):
    theirs = stride(index, LANE)
    with sums_multiplied_out():
        ours = stride(index, LANE)
    assert sympy.simplify(ours - expected) == 0
    assert sympy.simplify(ours - theirs) == 0


def test_what_is_no_number_is_left_to_sympy():
    assert multiplied_out(sympy.And(SIZE > 3, SIZE > 3)) == sympy.simplify(SIZE > 3)


def test_an_index_into_shifted_windows_comes_to_an_end():
    """Of Swin's first stage, rolled by 3 of a window of 7, sizes open: sympy.simplify was not waited for."""
    windows = FloorDiv(FloorDiv(FloorDiv(SIZE + 3, 4) + 1, 2) + 6, 7)
    width = FloorDiv(FloorDiv(SIZE + 3, 4) + 1, 2)
    rolled = ModularIndexing(ROW, 1, width) + sympy.Mod(7 * windows - 3, 7 * windows)
    inside = ModularIndexing(rolled, 1, 7 * windows)
    down = ModularIndexing(FloorDiv(ROW, width) + sympy.Mod(7 * windows - 3, 7 * windows), 1, 7 * windows)
    index = (2352 * windows * ModularIndexing(down, 7, windows) + 336 * ModularIndexing(down, 1, 7)
             + 48 * ModularIndexing(inside, 1, 7) + 2352 * ModularIndexing(inside, 7, windows) + LANE)
    started = time.perf_counter()
    with sums_multiplied_out():
        assert stride(index, LANE) == 1
        assert stride(index, ROW).has(ROW), 'a window ends somewhere: no stride is right for every row'
    assert time.perf_counter() - started < 5


def test_torch_has_its_own_arithmetic_back():
    with pytest.raises(RuntimeError, match='planted'), sums_multiplied_out():
        assert sizevars.sympy is not sympy
        raise RuntimeError('planted')
    assert sizevars.sympy is sympy


def test_only_masks_on_a_cpu_are_compared_by_torch():
    from torch._inductor.lowering import lowerings
    generated = lowerings[torch.ops.aten.gt.Tensor]
    with masks_compared_by_torch():
        assert lowerings[torch.ops.aten.gt.Tensor] is not generated
    assert lowerings[torch.ops.aten.gt.Tensor] is generated


@pytest.mark.slow
def test_masks_are_compared_as_eager_does(tmp_path):
    """A call of torch in a compiled package, at a size that it was not compiled with."""
    class Compared(torch.nn.Module):
        def forward(self, masks):
            return torch.ops.aten.gt.Tensor(masks * 2, torch.zeros(())), torch.ops.aten.gt.Tensor(masks.sum(dim=(2, 3)), torch.zeros(()))

    example = torch.randn(2, 5, 16, 24)
    sides = {axis: torch.export.Dim.AUTO for axis in (0, 2, 3)}
    program = torch.export.export(Compared(), (example,), dynamic_shapes=(sides,))
    with masks_compared_by_torch():
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / 'masks.pt2'))
    run = torch._inductor.aoti_load_package(package)
    image = torch.randn(3, 5, 7, 9)
    assert all(map(torch.equal, run(image), Compared()(image)))


def test_what_is_not_there_is_skipped_and_named(monkeypatch):
    reasons = {}
    monkeypatch.setattr('mmexport.utils.skipped._lines', reasons)
    from torch._inductor.lowering import lowerings
    monkeypatch.delitem(lowerings, torch.ops.aten.gt.Tensor)
    monkeypatch.delattr(sizevars, 'sympy')
    with masks_compared_by_torch(), sums_multiplied_out():
        pass
    assert sorted(reasons) == ["Inductor's simplification of indices", "torch's comparison of masks in Inductor"]


def test_a_workaround_that_raises_is_left_out(monkeypatch):
    """The error comes out of it, below torch's; an error of the model's is raised once."""
    reasons, runs = {}, []
    monkeypatch.setattr('mmexport.utils.skipped._lines', reasons)
    monkeypatch.setattr(internals, '_polynomial', None)

    def compile_it():
        runs.append(sizevars.sympy)
        try:
            return sizevars.sympy.simplify(ROW + 1)
        except TypeError as exc:
            raise RuntimeError('cannot compile') from exc

    assert internals.compiled(compile_it) == ROW + 1
    assert runs[1] is sympy and list(reasons) == ['all workarounds in Inductor']

    def refuses():
        runs.append('model')
        raise RuntimeError('cannot compile')

    with pytest.raises(RuntimeError, match='cannot compile'):
        internals.compiled(refuses)
    assert runs.count('model') == 1
