"""Define a user's model with one fault in it, that some format cannot hold or gets wrong, the line marked; and its diagnosis."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mmexport import Exporter
from mmexport.backends.building import availability
from mmexport.diagnosis import Diagnosis
from mmexport.model.config import load_config
from tests.device.planted import CONFIG as PROJECT
from tests.device.planted import filled

IMPORTS = 'import numpy as np\nfrom torch.nn import functional as F\n'


@dataclass(frozen=True)
class Fault:
    """Hold what stands where; `module` and `cause` are what the diagnosis must name, `stage` the step that it blames."""

    backend: str
    place: str
    code: str
    module: str
    cause: str
    stage: str = 'lowering'
    before: str = ''
    marked: bool = True

    def write(self, path: Path) -> None:
        path.write_text(filled(self.place, IMPORTS + self.before, '', self.code))

    @staticmethod
    def line(path: Path) -> int | None:
        return next((number for number, line in enumerate(path.read_text().splitlines(), 1) if '# FAULT' in line), None)


DOUBLE = '''

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2
'''
FAULTS = {
    '.item() in a neck': Fault('torch_export', 'neck', 'x = x * 2 if x.abs().mean().item() > 0.1 else x  # FAULT', 'neck', '.item()'),
    'a branch on a sum in a head': Fault('torch_export', 'head', 'if x.abs().sum() > 0:  # FAULT\n            x = x * 2', 'decode_head',
                                         'data-dependent Python'),
    'a loop over .tolist()': Fault('torchscript', 'own', 'for v in x.mean((0, 2, 3)).tolist():  # FAULT\n            x = x + 0.1 * v',
                                   'neck.own', '.tolist() or a loop over tensor values', 'traced'),
    'numpy in forward': Fault('torch_export', 'own', 'x = x + float(np.abs(x.detach().numpy()).mean())  # FAULT', 'neck.own',
                              'numpy in forward'),
    'a custom autograd Function': Fault('torchscript', 'neck', 'x = Double.apply(x)  # FAULT', 'neck', 'custom autograd Function',
                                        before=DOUBLE, marked=False),
    'an op without an ONNX form': Fault('onnx', 'head', 'x = x + torch.special.bessel_j0(x)  # FAULT', 'decode_head',
                                        'no operator of that name in the format'),
    'in-place on the input': Fault('torchscript', 'backbone', 'image.mul_(0.5)  # FAULT', 'backbone', 'in-place on the input', 'traced'),
    'a size baked by int()': Fault('torchscript', 'own', 'x = F.interpolate(x, size=(int(x.shape[2] * 2), int(x.shape[3] * 2)))  # FAULT',
                                   'neck.own', 'size baked by int() or float()', 'traced'),
    'a size baked by int(), exported': Fault('torch_export', 'own', 'x = F.interpolate(x, size=(int(x.shape[2]) * 2, 60))  # FAULT',
                                             'neck.own', 'size baked by int() or float()', 'refused', marked=False),
}
CONFIG = PROJECT + """
export = dict(outputs='raw', inputs=dict(shape=(1, 3, 64, 96)), verify=dict(shapes=[(96, 80)], noises=1))
"""


def diagnosed(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str,
              **section: Any) -> tuple[list[Diagnosis], Path]:
    if reason := availability().get(fault.backend):
        pytest.skip(reason)
    source = tmp_path / f'{name}.py'
    fault.write(source)
    config = tmp_path / 'config.py'
    config.write_text(CONFIG.format(module=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    cfg = load_config(config)
    cfg.export.update(backends=[fault.backend])
    cfg.export.update(section)
    report, = Exporter(cfg, work_dir=tmp_path / 'work').run()
    assert report.passed is False
    assert report.as_dict()['diagnoses']
    assert any(line.startswith('diagnosis of') for line in report.lines())
    return list(report.diagnoses), source
