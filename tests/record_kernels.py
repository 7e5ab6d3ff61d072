"""Record what the kernels of compiled mmcv make of the inputs in tests/kernel_cases.py, in tests/data/kernels.npz.

    python -m tests.record_kernels
It needs an mmcv with compiled ops; the file in the repository is of mmcv 2.1.0 on a CPU, torch 2.13.0.
"""
from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from .kernel_cases import cases

FILE = Path(__file__).parent / 'data' / 'kernels.npz'


def main() -> int:
    import mmcv
    import mmcv._ext as ext
    results = {}
    for case in cases():
        for number, tensor in enumerate(case.run(getattr(ext, case.kernel))):
            results[f'{case.kernel}/{case.name}/{number}'] = tensor.numpy()
    np.savez_compressed(FILE, made_by=f'mmcv {mmcv.__version__} compiled, torch {torch.__version__}', **results)
    print(f'{len(results)} results')
    return 0


if __name__ == '__main__':
    sys.exit(main())
