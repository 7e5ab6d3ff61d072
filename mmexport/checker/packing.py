"""Write the choices of a file into a JSON result: attention masks have millions of cells."""
from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def packed(tensor: Tensor) -> dict[str, Any]:
    """Return a JSON-able form of `tensor`, deflated."""
    array = tensor.cpu().contiguous().numpy()
    return dict(dtype=str(array.dtype), shape=list(array.shape), deflated=base64.b64encode(zlib.compress(array.tobytes(), 1)).decode())


def unpacked(content: Mapping[str, Any]) -> Tensor:
    """Return the tensor that `packed` wrote."""
    data = zlib.decompress(base64.b64decode(content['deflated']))
    return torch.from_numpy(np.frombuffer(data, dtype=content['dtype']).reshape(content['shape']).copy())
