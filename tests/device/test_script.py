"""Test anybody's TorchScript file: literals are found by node and line, fixed, and the file stays the same function."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mmexport.adapters import build_adapter
from mmexport.backends import build_backend
from mmexport.device.literals import literals
from mmexport.device.script import audit_script, fix_script, inputs_for, load_script
from mmexport.errors import InputError
from mmexport.inputs.synthetic import picture
from mmexport.patching import patched
from tests.tiny import NAMES, SHAPE, seeded

HERE = Path(__file__)


@torch.jit.script
def helper(x: Tensor) -> Tensor:
    return x * torch.ones(4, device=torch.device('cpu'))  # LITERAL in a called function


@torch.jit.script
def forgetful(x: Tensor) -> Tensor:
    return x + torch.zeros(x.shape[-1])  # FORGOTTEN


class Forgetful(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return forgetful(x)  # type: ignore[no-any-return]


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(x.shape[-1])  # LITERAL of a trace


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.mix = Inner(), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = helper(self.mix(self.inner(x)))
        return x + x.mean().cpu() + x.cpu()  # LITERAL: the first meets nothing, being 0-dimensional


IMAGE = torch.randn(2, 4)


def saved(path: Path, frozen: bool) -> Path:
    module = torch.jit.trace(Net().eval(), (IMAGE,))
    torch.jit.save(torch.jit.freeze(module) if frozen else module, str(path))
    return path


def lines(word: str) -> set[int]:
    return {number for number, line in enumerate(HERE.read_text().splitlines(), 1) if word in line and 'lines(' not in line}


@pytest.mark.parametrize('frozen', [False, True])
def test_literals_are_found_at_their_lines(frozen: bool, tmp_path: Path) -> None:
    audit = audit_script(saved(tmp_path / 'm.pt', frozen), (IMAGE,))
    assert {finding.kind for finding in audit.findings} == {'literal'}
    actual = {finding.origin.line for finding in audit.findings if finding.origin.file == str(HERE)}
    # Freezing computes the constant of the called function, and the literal with it.
    assert actual == lines('# LITERAL of') | lines('# LITERAL:') | (set() if frozen else lines('# LITERAL in'))
    assert all('cpu' in finding.what and finding.op.startswith('aten::') for finding in audit.findings)


@pytest.mark.parametrize('frozen', [False, True])
def test_fixed_is_clean_and_the_same_function(frozen: bool, tmp_path: Path) -> None:
    path, out = saved(tmp_path / 'm.pt', frozen), tmp_path / 'out.pt'
    before = path.read_bytes()
    audit = fix_script(path, out, (IMAGE,))
    assert audit.clean
    assert audit_script(out, (IMAGE,)).clean
    assert any(line.startswith('unchanged, because its result never meets another device: aten::to') for line in audit.fixed)
    other = torch.randn(3, 4)
    assert torch.equal(torch.jit.load(str(path))(other), torch.jit.load(str(out))(other))
    assert path.read_bytes() == before
    assert [literal.device for literal in literals(load_script(out).graph)] == ['cpu']


def test_what_names_no_device_is_found_and_fixed(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.trace(Forgetful(), (IMAGE,)), str(tmp_path / 'm.pt'))
    audit = audit_script(tmp_path / 'm.pt', (IMAGE,))
    assert [finding.what for finding in audit.findings] == ['aten::zeros without a device']
    assert audit.findings[0].origin.line in lines('# FORGOTTEN')
    assert fix_script(tmp_path / 'm.pt', tmp_path / 'out.pt', (IMAGE,)).clean
    assert torch.equal(torch.jit.load(str(tmp_path / 'out.pt'))(IMAGE), IMAGE)


def test_sizes_as_tensors_are_on_the_cpu(tmp_path: Path) -> None:
    """A trace keeps ``torch.as_tensor(x.shape, device=x.device)`` as a CPU tensor that is moved; without the move it would fail."""
    class Sized(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[0, :2] * torch._shape_as_tensor(x)

    torch.jit.save(torch.jit.trace(Sized(), (IMAGE,)), str(tmp_path / 'm.pt'))
    audit = audit_script(tmp_path / 'm.pt', (IMAGE,))
    assert len(audit.findings) == 1
    assert not fix_script(tmp_path / 'm.pt', tmp_path / 'out.pt', (IMAGE,)).clean


def test_more_literals_than_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Many(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(7):
                x = x + torch.arange(x.shape[-1])
            return x

    torch.jit.save(torch.jit.trace(Many(), (IMAGE,)), str(tmp_path / 'm.pt'))
    monkeypatch.setattr('mmexport.device.script.MARKS', 3)
    assert len(audit_script(tmp_path / 'm.pt', (IMAGE,)).findings) == 7
    assert fix_script(tmp_path / 'm.pt', tmp_path / 'out.pt', (IMAGE,)).clean


@pytest.mark.parametrize('content', [b'', b'no zip', None])
def test_what_is_no_torchscript_file_is_an_error(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / 'm.pt').write_bytes(content)
    with pytest.raises(InputError, match='m.pt'):
        audit_script(tmp_path / 'm.pt', (IMAGE,))


@pytest.mark.parametrize('name', NAMES)
def test_our_artifacts_hold_on_any_device(name: str, tmp_path: Path) -> None:
    adapter = build_adapter(seeded(name))
    for parameter in adapter.parameters():
        parameter.requires_grad_(False)
    image = picture(SHAPE, 0, adapter)
    with patched('auto'):
        artifact = build_backend('torchscript').lower(adapter, image, tmp_path / 't', {})
    audit = audit_script(artifact.file, (image,), 'cuda:1')
    assert audit.device == 'cuda:1'
    assert audit.clean, '\n'.join(audit.lines())
    assert not literals(load_script(artifact.file).graph)
    assert audit.ops > 50


def test_the_size_is_that_of_the_manifest(tmp_path: Path) -> None:
    assert inputs_for(tmp_path / 'model.pt')[0].shape == (1, 3, 256, 256)
    (tmp_path / 'manifest.json').write_text('{"inputs": [{"name": "image", "traced": [1, 3, 96, 128]}]}')
    assert inputs_for(tmp_path / 'model.pt')[0].shape == (1, 3, 96, 128)


def test_a_file_with_several_inputs_gets_all_of_them(tmp_path: Path) -> None:
    class Clipped(nn.Module):
        def forward(self, image: Tensor, img_shape: Tensor) -> Tensor:
            return torch.minimum(image, img_shape[:, :1, None, None].to(image)) + torch.zeros(1, device='cpu')

    traced = torch.jit.trace(Clipped(), (torch.rand(1, 3, 8, 8), torch.ones(1, 2, dtype=torch.int64)))
    path = tmp_path / 'model.pt'
    torch.jit.save(traced, str(path))
    (tmp_path / 'manifest.json').write_text(json.dumps(dict(inputs=[
        dict(name='image', traced=[1, 3, 96, 128], axes=['batch', 'channel', 'height', 'width'], dtype='float32'),
        dict(name='img_shape', traced=[1, 2], axes=['batch', 'side'], dtype='int64')])))
    inputs = inputs_for(path, (64, 80))
    assert [(tuple(tensor.shape), tensor.dtype) for tensor in inputs] == [((1, 3, 64, 80), torch.float32), ((1, 2), torch.int64)]
    assert audit_script(path, inputs).findings
    assert fix_script(path, tmp_path / 'out.pt', inputs).clean


def test_an_unpatched_trace_is_no_artifact(tmp_path: Path) -> None:
    """The fault from the field: traced on a CPU, moved to CUDA, dead in C++."""
    adapter = build_adapter(seeded('mask2former_r50'), outputs='raw')
    image = picture(SHAPE, 0, adapter)
    with torch.no_grad():
        torch.jit.save(torch.jit.trace(adapter, (image,), check_trace=False), str(tmp_path / 'm.pt'))
    audit = audit_script(tmp_path / 'm.pt', (image,))
    assert audit.findings
    assert any('mmdet' in finding.origin.file for finding in audit.findings)
    assert fix_script(tmp_path / 'm.pt', tmp_path / 'out.pt', (image,)).clean
