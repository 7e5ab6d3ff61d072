"""List pairs of installed packages that do not work together. Each has its remedy."""
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Version = tuple[int, ...]


@dataclass(frozen=True)
class Pair:
    """Describe two packages that do not work together in these versions.

    Attributes:
        first, second: distributions, each with the versions concerned: from the first, below the second; an empty tuple is open.
        effect: what happens.
        remedy: what to run.
        stops: whether nothing works; else one format does not, and the others do.
    """

    first: tuple[str, Version, Version]
    second: tuple[str, Version, Version]
    effect: str
    remedy: str
    stops: bool = True

    def concerns(self, versions: Mapping[str, Any]) -> bool:
        return all(name in versions and _between(parse(str(versions[name])), low, high)
                   for name, low, high in (self.first, self.second))


def parse(version: str) -> Version:
    """Return the numbers of a version: 2.13.0+cpu -> (2, 13, 0)."""
    return tuple(int(part) for part in re.findall(r'\d+', version.partition('+')[0])[:3])


def known_incompatible(versions: Mapping[str, Any]) -> list[Pair]:
    """Return the pairs that concern the installed `versions`, by name of distribution."""
    return [pair for pair in PAIRS if pair.concerns(versions)]


def _between(version: Version, low: Version, high: Version) -> bool:
    return version >= low and (not high or version < high)


_LITE = "pip install 'mmcv-lite>=2.0,<2.2'"
PAIRS = (
    # mmcv writes the same folder from both distributions.
    Pair(('mmcv', (), ()), ('mmcv-lite', (), ()), 'they install the same folder and overwrite each other',
         f'pip uninstall -y mmcv mmcv-lite, then {_LITE}'),
    # mmdet/__init__.py and mmseg/__init__.py assert the version.
    *(Pair((name, (2, 2), ()), (other, (), ()), f'importing {other} stops with an AssertionError', f'pip uninstall -y {name}, then {_LITE}')
      for name in ('mmcv', 'mmcv-lite') for other in ('mmdet', 'mmsegmentation')),
    *(Pair((name, (2, 1), ()), (other, (), first), f'importing {other} stops with an AssertionError',
           f"pip uninstall -y {name}, then pip install 'mmcv-lite>=2.0,<2.1'")
      for name in ('mmcv', 'mmcv-lite') for other, first in (('mmdet', (3, 2)), ('mmsegmentation', (1, 2)))),
    # mmengine/utils/package_utils.py imports pkg_resources.
    Pair(('mmengine', (), ()), ('setuptools', (81,), ()), 'mmengine imports pkg_resources, which this setuptools no longer has',
         "pip install 'setuptools<81'"),
    Pair(('onnxruntime', (), ()), ('onnxruntime-gpu', (), ()), 'they install the same folder and overwrite each other',
         'pip uninstall -y onnxruntime onnxruntime-gpu, then install one of them', stops=False),
    # Built for numpy 1, they have no way between tensors and arrays of numpy 2.
    Pair(('torch', (), (2, 3)), ('numpy', (2,), ()), 'tensors cannot become arrays (Numpy is not available)', "pip install 'numpy<2'"),
    # Found with Mask2Former: no rules for aten.mul.Scalar and for aten.remainder.Scalar.
    Pair(('torch', (2, 8), ()), ('onnxscript', (), (0, 7, 2)), 'an ONNX export finds no rule for aten.mul.Scalar',
         "pip install 'onnxscript>=0.7.2'", stops=False),
    Pair(('torch', (2, 8), ()), ('openvino', (), (2026, 1)), 'an OpenVINO export finds no rule for aten.remainder.Scalar',
         "pip install 'openvino>=2026.1'", stops=False),
)
