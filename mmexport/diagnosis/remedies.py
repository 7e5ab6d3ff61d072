"""List known causes and remedies; the first match applies."""
from __future__ import annotations

import re
from typing import NamedTuple

from ..errors import Fact


class Reason(str):
    """Hold a message with the fact that it states, if that is one of `Fact`."""

    fact: Fact | None

    def __new__(cls, words: str, fact: Fact | None = None) -> Reason:
        reason = super().__new__(cls, words)
        reason.fact = fact
        return reason


class Remedy(NamedTuple):
    """Describe a known cause: a pattern `source` in the line of code, `message` in an exporter's error, or a `fact` of mmexport's own."""

    cause: str
    words: str
    source: str | None = None
    message: str | None = None
    fact: Fact | None = None


REMEDIES = (
    Remedy('a crash of the runtime', 'take another version of it, or leave its last optimizations out, and report it there with the file; '
           'exit code -9: the system killed it, usually out of memory', fact=Fact.CRASH),
    Remedy('in-place on the input', 'the next user of that tensor gets something else: write x = x * 2 instead of x *= 2, or clone first',
           fact=Fact.WRITES_INPUT),
    Remedy('.item()', 'keep the value a tensor: torch.where instead of if, arithmetic with the 0-dimensional tensor itself',
           source=r'\.item\(\)', message=r'Tensor\.item'),
    Remedy('.tolist() or a loop over tensor values', 'a loop over values is written out for the example; use tensor operations',
           source=r'\.tolist\(\)', message=r'Python list'),
    Remedy('numpy in forward', "numpy is outside the graph: the value of the example becomes a constant; use torch's function of that name",
           source=r'numpy|np\.', message=r'NumPy|\.numpy\(\)|numpy'),
    Remedy('custom autograd Function', 'its forward is Python that the file cannot hold: call the operations themselves in eval mode, by a '
           'patch', source=r'\.apply\(', message=r'Python function call|PythonOp|autograd\.Function|SavedTensor'),
    Remedy('non-maximum suppression', 'its number of results depends on the data; export the raw outputs and suppress outside, or use the '
           'op of the format', source=r'nms\(', message=r'\bnms\b|NonMaxSuppression'),
    Remedy('data-dependent Python', 'a branch on values is decided once, for the example: torch.where keeps both sides in the graph',
           source=r'^(if|while|assert)\b.*(>|<|==|any\(|all\()(?!.*(shape|size\())',
           message=r'data-dependent|GuardOnDataDependent|Python boolean|unbacked'),
    Remedy('size baked by int() or float()', 'int(), float(), round() and math.* turn a traced size into a number: stay with integer '
           'arithmetic on x.shape, or patch it with mmexport.ops.sizes', source=r'\b(int|float|round|math\.\w+)\(',
           message=r'Python (integer|float|number|index)|Specializations? unexpectedly', fact=Fact.FIXED_SIZE),
    Remedy('a dtype that changed', 'a cast was lost or added on the way; compare the dtypes of the module before and after',
           fact=Fact.OTHER_DTYPE),
    Remedy('no operator of that name in the format', 'write it with operations that the format has, in a patch; --outputs raw leaves '
           'out what decides after the network', message=r'No ONNX function found|No conversion rule|not supported|UnsupportedOperator|'
           r'no decompositions? registered'),
)


BRANCHES = {
    'size': Remedy('a branch on a size', 'the file holds the side that the traced size takes: compute both and choose by tensor operations '
                   '(torch.where), or export once for each side, over sizes that do not turn it (export.verify.shapes)'),
    'value': Remedy('a branch on a value', 'the file holds the side that the traced picture takes: compute both and choose by torch.where'),
}


def remedy_for(message: str, source: str, stage: str, fact: Fact | None = None) -> tuple[str | None, str | None]:
    """Return cause and remedy for an error message and its line; (None, None) if unknown."""
    for remedy in REMEDIES:
        if _fits(remedy.source, source) or _fits(remedy.message, message) or (fact is not None and remedy.fact is fact):
            return remedy.cause, remedy.words
    if stage == 'file':
        return 'the conversion', ('the model is followed rightly and the file computes another value: compare the module alone, and report '
                                  'it to the format')
    if stage == 'patched':
        return 'a patch', 'the patch of this module computes another value than upstream; leave it out with export.patches, or fix it'
    return None, None


def _fits(pattern: str | None, text: str) -> bool:
    return bool(pattern and text and re.search(pattern, text))
