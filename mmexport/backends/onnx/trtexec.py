"""Compose the ``trtexec`` command that builds a TensorRT engine of an ONNX file; it is not run here."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...adapters.specs import IMAGE
from ..exported.valid_sizes import RANGES


def trtexec_line(file: str, inputs: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the trtexec command for the manifest's inputs. Open sides go from half to twice the traced ones; TF32 is off.

    TensorRT reserves memory for the largest shape, so the line does not name all that the file can take. None where no traced shape is
    noted.
    """
    if any('traced' not in spec for spec in inputs):
        return None
    line = f'trtexec --onnx={file} --saveEngine={file.removesuffix(".onnx")}.engine --noTF32'
    if not any(spec['dynamic'] for spec in inputs):
        return line
    shapes: dict[str, list[str]] = {'min': [], 'opt': [], 'max': []}
    for spec in inputs:
        least, usual, most = list(spec['traced']), list(spec['traced']), list(spec['traced'])
        for name in spec['dynamic']:
            axis = list(spec.get('axes', IMAGE.axes)).index(name)
            low, high = RANGES[name] if name in RANGES else spec['ranges'][name]
            least[axis] = 1 if name == 'batch' else max(low, usual[axis] // 2)
            most[axis] = min(high, 2 * usual[axis])
        for which, size in zip(shapes, (least, usual, most), strict=True):
            shapes[which].append(f"{spec['name']}:{'x'.join(map(str, size))}")
    return ' '.join([line, *(f"--{which}Shapes={','.join(sizes)}" for which, sizes in shapes.items())])
