"""``repro.py``: the failure in a file of under 40 lines, with torch and the installed OpenMMLab package alone, for an upstream issue."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_unflatten

from .finding import Diagnosis
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

cfg = Config.fromfile({config!r})
init_default_scope({scope!r})
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
LOWER = {
    'torchscript': 'torch.jit.save(torch.jit.freeze(torch.jit.trace(Part().eval(), inputs, check_trace=False)), "part.pt")\n',
    'onnx': 'torch.onnx.export(Part().eval(), inputs, "part.onnx", dynamo=True, opset_version=18)\n',
    'openvino': 'import openvino\n\nopenvino.convert_model({exported})\n',
    'aotinductor': 'torch._inductor.aoti_compile_and_package({exported})\n',
}
EXPORTED = 'torch.export.export(Part().eval(), inputs, dynamic_shapes={dims}, strict=False)'


def write_repro(found: Diagnosis, part: Part | None, cfg: Any, place: Path) -> Path | None:
    """Write it for a part that cannot be lowered; None where the part needs what source code cannot make (a data sample, say)."""
    place.unlink(missing_ok=True)
    arguments = _arguments(part) if part is not None else None
    if part is None or arguments is None or not cfg.filename:
        return None
    names, call = arguments
    scope = cfg.get('default_scope') or 'mmengine'
    package = {'mmseg': 'mmsegmentation', 'mmdet': 'mmdet'}.get(scope, scope)
    path = found.module.split(', call ')[0]
    text = HEAD.format(title=f'{found.cls}: {found.message}'.replace('\\', '/').replace('"""', "'''"), torch=torch.__version__,
                       package=package, name=place.name, config=str(cfg.filename), scope=scope, path=path,
                       names=', '.join(names), call=call, inputs=', '.join(_made(tensor) for tensor in part.inputs))
    exported = EXPORTED.format(dims=tuple({axis: '_' for axis, side in enumerate(tensor.shape) if side > 1} for tensor in part.inputs))
    exported = exported.replace("'_'", 'torch.export.Dim.AUTO')
    text += LOWER.get(found.backend, '{exported}\n').format(exported=exported)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def _arguments(part: Part) -> tuple[list[str], str] | None:
    """The names of the tensors, and the call that is made of them and of the other arguments as they stand in source code."""
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
    """Source code that ``repr`` of the containers around it leaves as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _made(tensor: Tensor) -> str:
    shape = tuple(tensor.shape)
    if tensor.is_floating_point():
        return f'torch.rand{shape}' if tensor.dtype == torch.float32 else f'torch.rand{shape}.to({tensor.dtype})'
    return f'torch.ones({shape}, dtype={tensor.dtype})'
