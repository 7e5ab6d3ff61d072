"""Draw the label maps of the eager model and of a file side by side."""
from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..checker.kinds import kind_of
from ..errors import UnsupportedModelError
from ..inputs.synthetic import photograph, picture

# Arguments: the file, the device, a file with the input, and one to write the first output to.
_RUN = """import sys, torch
file, device, image, out = sys.argv[1:]
torch.save(torch.jit.load(file, map_location=device)(torch.load(image).to(device))[0].cpu(), out)"""


def draw_label_maps(adapter: Adapter, file: Path, shape: Sequence[int], device: torch.device, input_img: str | None, path: Path) -> float:
    """Write the picture, eager's labels and the TorchScript file's side by side; return the share of pixels that agree.

    Args:
        shape: of the input (N, C, H, W); a picture file is resized to it.
        input_img: a picture file; without one, a synthetic picture is drawn.

    Raises:
        UnsupportedModelError: the first output is no label map.
    """
    import cv2
    import numpy as np
    if not getattr(kind_of(adapter.specs[0].kind), 'MAP', False):
        raise UnsupportedModelError(f'--show draws label maps, and this model gives {adapter.specs[0].name}')
    size = (int(shape[2]), int(shape[3]))
    image = photograph(input_img, size, adapter).expand(*shape).contiguous() if input_img else picture(tuple(shape), 0, adapter)
    image = image.to(device)
    with torch.no_grad():
        eager = adapter.run_on(image)[0][0].cpu()
    exported = _first_output(file, device, image)[0]
    shown = (image if adapter.preprocess.inside else adapter.preprocess.undo(image))[0].clamp(0, 255).permute(1, 2, 0)
    drawn = shown.cpu().numpy().astype(np.uint8)
    cv2.imwrite(str(path), np.concatenate([drawn, colours(eager.numpy()), colours(exported.numpy())], axis=1))
    return float((eager == exported).double().mean())


def _first_output(file: Path, device: torch.device, image: Tensor) -> Tensor:
    """Run a TorchScript file in a process of its own: no file is loaded in the one that exports."""
    with TemporaryDirectory() as folder:
        given, out = Path(folder) / 'image.pt', Path(folder) / 'out.pt'
        torch.save(image.cpu(), given)
        subprocess.run([sys.executable, '-c', _RUN, str(file), str(device), str(given), str(out)], check=True)
        output: Tensor = torch.load(out)
        return output


def colours(labels: Any) -> Any:
    """Return a fixed colour for each label: (H, W) -> (H, W, 3), arrays of numpy."""
    import numpy as np
    values = labels.astype(np.int64)
    return np.stack([(values * factor + shift) % 256 for factor, shift in ((37, 60), (91, 120), (151, 200))], axis=-1).astype(np.uint8)
