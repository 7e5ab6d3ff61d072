"""Check that the conditions of a manifest are evaluated as sympy means them, and that nothing else is."""
from __future__ import annotations

import pytest

from mmexport.checker.conditions import check_known, refused

SIZES = dict(batch=2, height=96, width=200)


HOLD = '''
2*(((width - 1)//4)) <= 3*(((height - 1)//4)) + 30
Ne(((height - 1)//4), 24)
Max(height, width) <= 200
Eq(Mod(height, 32), 0)
height + width == 296
width - height == 104
height*batch == 192
width//height == 2
width % height == 8
height/width < 0.49
batch**3 == 8
(height > 9) & (width > 9)
(height > 99) | (width > 9)
~(height > 99)
-height < -9
height < width
width > height
96 >= height
height != 97
0 < batch < 3
Min(height, width) == 96
Eq(batch, 2)
PythonMod(width, height) == 8
FloorDiv(width, height) == 2
CleanDiv(height, 32) == 3
Not(height > 99)
CeilDiv(width, height) == 3
Abs(height - width) == 104
IntTrueDiv(width, 400) == 0.5
FloatTrueDiv(width, 400) == 0.5
ToFloat(batch) == 2.0
PowByNatural(batch, 3) == 8
FloatPow(batch, 3) == 8
CeilToInt(width/height) == 3
FloorToInt(width/height) == 2
TruncToInt(-width/height) == -2
RoundToInt(2.6) == 3
ceiling(width/height) == 3
floor(width/height) == 2
sqrt(batch*2) == 2
OpaqueUnaryFn_sqrt(batch*2) == 2
OpaqueUnaryFn_log2(batch) == 1
OpaqueUnaryFn_log(1) == 0
OpaqueUnaryFn_exp(0) == 1
True
'''.strip().splitlines()
REFUSED = '''
__import__("os").getcwd()
height.__class__
other > 3
open("x")
"a" < "b"
+height
not height
height in width
height << 2
Max(height, key=width)
[height]
height if width else batch
Max()(1)
'''.strip().splitlines()


@pytest.mark.parametrize('text', HOLD)
def test_true_condition_is_accepted(text: str) -> None:
    assert refused([text], SIZES) is None
    assert refused([f'Not({text})'], SIZES) == f'Not({text})'
    check_known([text], SIZES)


def test_first_false_condition_is_returned() -> None:
    conditions = ['height < 200', 'width < 200', 'width < 100']
    assert refused(conditions, SIZES) == 'width < 200'
    assert refused(conditions[:1], SIZES) is None
    assert refused(['Ne(((height - 1)//4), 23)'], SIZES) == 'Ne(((height - 1)//4), 23)'
    assert refused(['0 < batch < 2'], SIZES) == '0 < batch < 2'
    assert refused(['3 < batch < 9'], SIZES) == '3 < batch < 9'


@pytest.mark.parametrize('text', REFUSED)
def test_non_arithmetic_condition_raises(text: str) -> None:
    for function in (refused, check_known):
        with pytest.raises(ValueError, match='is no arithmetic on sizes: this manifest cannot be followed'):
            function(['height > 1', text], SIZES)


def test_check_known_evaluates_all_conditions() -> None:
    with pytest.raises(ValueError, match='^other is no arithmetic'):
        check_known(['height > 999', 'other > 3'], SIZES)


def test_a_huge_power_is_no_arithmetic_on_sizes() -> None:
    """Python would compute 9 to the 387420489th for ever."""
    for text in ('9**9**9 > 0', 'PowByNatural(height, 9**9) > 0', 'FloatPow(2.0, 1000) > 0'):
        with pytest.raises(ValueError, match='an exponent of'):
            refused([text], {'height': 9})
    assert refused(['height**2 > 80'], {'height': 9}) is None
