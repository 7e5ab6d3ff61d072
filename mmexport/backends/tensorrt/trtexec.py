"""Compose the ``trtexec`` command that builds a TensorRT engine of an ONNX file; it is not run here."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..examples import AXIS
from ..exported.held_sizes import RANGES


def trtexec_line(file: str, image: Mapping[str, Any]) -> str | None:
    """Return the command for the manifest's input, from half of its open sides to twice them; TF32 off.

    TensorRT reserves memory for the largest shape, so the line does not name all that the file can take. None where no traced shape
    (N, 3, H, W) is noted.
    """
    if 'traced' not in image:
        return None
    shape, dynamic = image['traced'], image['dynamic']
    line = f'trtexec --onnx={file} --saveEngine={file.removesuffix(".onnx")}.engine --noTF32'
    if not dynamic:
        return line
    least, most = list(shape), list(shape)
    for name in dynamic:
        axis = AXIS[name]
        least[axis] = 1 if name == 'batch' else max(RANGES[name][0], shape[axis] // 2)
        most[axis] = min(RANGES[name][1], 2 * shape[axis])
    sizes = zip(('min', 'opt', 'max'), (least, shape, most), strict=True)
    return ' '.join([line, *(f"--{which}Shapes=image:{'x'.join(map(str, size))}" for which, size in sizes)])
