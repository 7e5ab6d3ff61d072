"""Write ``repro.py``: the failure in under 40 lines, with torch and the OpenMMLab package alone, for an issue."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from difflib import SequenceMatcher
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from ..backends import Backend
from ..compat.pytree import tree_unflatten
from .diagnosis import Diagnosis
from .parts import Part

HEAD = '''"""{title}

Needs torch {torch} and {package}; run: python {name}
"""
import sys
from unittest.mock import MagicMock

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

try:
    import mmcv.ops  # noqa: F401
except ImportError:  # mmcv-lite: nothing below runs a compiled op
    sys.modules['mmcv._ext'] = MagicMock()

{cfg}
init_default_scope({scope!r})
if 'semi_test_cfg' in cfg.model:
    cfg.model = cfg.model.detector
if 'pretrained' in cfg.model:
    cfg.model.pretrained = None
torch.manual_seed(0)
model = MODELS.build(cfg.model).eval()


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.module = model.get_submodule({path!r})

    def forward(self, {names}):
        return self.module({call})


inputs = ({inputs},)
'''
EXPORTED = 'torch.export.export(Part().eval(), inputs, dynamic_shapes={dims}, strict=False)'
# What a form makes of another picture's tensors: refuses them, or computes something else.
COMPARE = '''others = ({others},)
form = {form}
torch.testing.assert_close(form(*others), Part().eval()(*others), rtol=1e-3, atol=1e-4)
'''
LIMIT_S = 300
# Two messages of one error, without their numbers, are at least this much alike (difflib's ratio).
ALIKE = 0.8
# A shorter line does not identify an error.
SHORTEST = 8


def write_repro(diagnosis: Diagnosis, backend: Backend, part: Part | None, cfg: Any, place: Path) -> Path | None:
    """Write the repro of a part that cannot be lowered or is wrong.

    None where the part needs what source code cannot make (a data sample, say), or where it is the file that is wrong and the form
    before it is right: to run files is mmexport's own code.
    """
    place.unlink(missing_ok=True)
    arguments = _arguments(part) if part is not None else None
    if part is None or arguments is None or not cfg.filename or diagnosis.stage == 'file':
        return None
    names, call = arguments
    scope = cfg.get('default_scope') or 'mmengine'
    package = {'mmseg': 'mmsegmentation', 'mmdet': 'mmdet'}.get(scope, scope)
    text = HEAD.format(title=f'{diagnosis.cls}: {diagnosis.message}'.replace('\\', '/').replace('"""', "'''"), torch=torch.__version__,
                       package=package, name=place.name, cfg=_read(str(cfg.filename), scope), scope=scope, path=diagnosis.path,
                       names=', '.join(names), call=call, inputs=', '.join(map(_made, part.inputs)))
    exported = EXPORTED.format(dims=_dims(part))
    if diagnosis.stage == 'lowering':
        text += backend.repro.format(exported=exported)
    else:
        text += COMPARE.format(others=', '.join(map(_made, part.others)), form=backend.repro_intermediate.format(exported=exported))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def run_alone(place: Path, diagnosis: Diagnosis) -> str | None:
    """Run the repro at `place`; return '' where it ends with the error of `diagnosis`, the other error that it ends with, or None.

    None is for a file that shows nothing: it does not fail, or does not end.

    The repro has the model without patches and with weights of its own, so a part may be right alone, or fail for another reason.
    """
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join(path for path in sys.path if path)}
    with TemporaryDirectory() as scratch:
        try:
            done = subprocess.run([sys.executable, '-W', 'ignore', str(place.resolve())], capture_output=True, text=True, cwd=scratch,
                                  env=env, check=False, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return None
    if done.returncode == 0:
        return None
    return '' if same_error(diagnosis, done.stderr) else f'alone it ends with another error: {_final_error(done.stderr)}'


def same_error(diagnosis: Diagnosis, stderr: str) -> bool:
    """Tell whether the traceback in `stderr` ends as `diagnosis` says; numbers, symbols of sizes and quotes may differ.

    A part whose form computes something else must fail in the comparison at the end of the repro; one that cannot be lowered, or
    refuses another size, must fail with the exporter's message.
    """
    final = _final_error(stderr)
    if diagnosis.stage not in ('lowering', 'refused'):
        return final.startswith('AssertionError') and 'not close' in stderr
    # The exporter's message may hold the first or the last line of the error, whichever says the reason.
    expected_line = _plain(diagnosis.message.splitlines()[0])
    error_lines = stderr[stderr.rfind(final):].splitlines()
    lines = [_plain(line) for line in (final.partition(': ')[2], *error_lines) if line.strip()]
    return any(len(line) >= SHORTEST and (line in expected_line or SequenceMatcher(None, expected_line[-len(line):], line).ratio() >= ALIKE)
               for line in lines)


def _final_error(stderr: str) -> str:
    """Return the line of the last exception in a traceback: its type and the first line of its message."""
    lines = [line for line in stderr.splitlines() if re.match(r'[A-Za-z_][\w.]*(: |$)', line)]
    errors = [line for line in lines if re.match(r'[\w.]*(Error|Exception|Violation|Fail|Interrupt|Unsupported|Exit)\w*(: |$)', line)]
    return (errors or lines or ['no message'])[-1].strip()


def _plain(message: str) -> str:
    """Lower case, without what changes from run to run: numbers, symbols like s73, addresses, quotes and repeated blanks."""
    return re.sub(r'\s+', ' ', re.sub(r'[su]?\d+|0x[0-9a-f]+|[\'"`]', '#', message.lower())).strip()


def _read(config: str, scope: str) -> str:
    """Return the lines that read `config`; one of an installed package is named by its path in it.

    One of the user's own is named from the root: the repro is run in another folder than the export.
    """
    _, separator, name = config.partition(f'/{scope}/.mim/configs/')
    if not separator:
        return f'cfg = Config.fromfile({str(Path(config).resolve())!r})'
    return f"import {scope}  # noqa: E402\n\ncfg = Config.fromfile(f'{{{scope}.__path__[0]}}/.mim/configs/{name}')"


def _dims(part: Part) -> str:
    """Return the source of ``dynamic_shapes``: axes that change with the picture must stay open."""
    moving = part.moving or [[] for _ in part.inputs]
    dims = tuple({axis: 'DYNAMIC' if axis in axes else 'AUTO' for axis, side in enumerate(tensor.shape) if side > 1}
                 for tensor, axes in zip(part.inputs, moving, strict=True))
    return re.sub(r"'(AUTO|DYNAMIC)'", r'torch.export.Dim.\1', repr(dims))


def _arguments(part: Part) -> tuple[list[str], str] | None:
    """Return the names of the tensors, and the source of the call with them. Other arguments are written out."""
    names = [f'x{number}' for number in range(len(part.places))]
    leaves: list[Any] = [Word(repr(leaf)) for leaf in part.rest]
    for leaf in part.rest:
        if not isinstance(leaf, (int, float, bool, str, type(None), torch.dtype)):
            return None
    for place, name in zip(part.places, names, strict=True):
        leaves[place] = Word(name)
    args, kwargs = tree_unflatten(leaves, part.spec)
    return names, ', '.join([*map(repr, args), *(f'{key}={value!r}' for key, value in kwargs.items())])


class Word:
    """Hold source code that ``repr`` of its containers leaves unchanged."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _made(tensor: Tensor) -> str:
    shape = tuple(tensor.shape)
    if tensor.is_floating_point():
        return f'torch.rand{shape}' if tensor.dtype == torch.float32 else f'torch.rand{shape}.to({tensor.dtype})'
    return f'torch.ones({shape}, dtype={tensor.dtype})'
