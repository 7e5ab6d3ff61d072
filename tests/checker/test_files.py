"""Check that a folder's file is the one that its manifest describes, and that its inputs and outputs have the names in it."""
from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmexport.artifact import sha256
from mmexport.checker import files
from mmexport.checker.files import Guarded, add_runner, load, runner_of, stale


def manifest_of(folder: Path, **more: Any) -> dict[str, Any]:
    (folder / 'model.pt').write_bytes(b'weights')
    return dict(file='model.pt', sha256=sha256(folder / 'model.pt'), backend='torchscript', **more)


def test_stale_compares_sha256_of_each_file(tmp_path: Path) -> None:
    for name in ('model.bin', 'samples.npz'):
        (tmp_path / name).write_bytes(name.encode())
    manifest = manifest_of(tmp_path, also={'model.bin': sha256(tmp_path / 'model.bin')}, samples_sha256=sha256(tmp_path / 'samples.npz'))
    assert stale(tmp_path, manifest) is None
    assert stale(tmp_path, manifest, 'samples.npz') is None
    for name, samples in (('model.bin', None), ('samples.npz', 'samples.npz'), ('model.pt', None)):
        before = sha256(tmp_path / name)
        (tmp_path / name).write_bytes(b'other')
        after = sha256(tmp_path / name)
        assert stale(tmp_path, manifest, samples) == (
            f'{name} is not the file of this manifest (sha256 {after[:12]}..., the manifest says {before[:12]}...): it was replaced or cut '
            'short; export again')
        (tmp_path / name).write_bytes(b'weights' if name == 'model.pt' else name.encode())
    (tmp_path / 'samples.npz').write_bytes(b'other')
    assert stale(tmp_path, manifest) is None
    (tmp_path / 'model.bin').unlink()
    assert stale(tmp_path, manifest) == f"{tmp_path / 'model.bin'} is missing"


@pytest.mark.parametrize('change', [dict(file='../model.pt'), dict(also={'/etc/hostname': 'x'}), dict(file='sub/model.pt')])
def test_files_of_a_manifest_lie_beside_it(change: dict[str, Any], tmp_path: Path) -> None:
    assert 'its files lie beside it' in str(stale(tmp_path, {**manifest_of(tmp_path), **change}))


def test_samples_without_sha256_are_accepted(tmp_path: Path) -> None:
    (tmp_path / 'samples.npz').write_bytes(b'any')
    assert stale(tmp_path, manifest_of(tmp_path), 'samples.npz') is None


def test_load_applies_the_input_rules(tmp_path: Path) -> None:
    class Doubling(nn.Module):
        def forward(self, image: Tensor) -> Tensor:
            return image * 2

    torch.jit.script(Doubling()).save(str(tmp_path / 'model.pt'))
    spec = dict(name='image', axes=['batch', 'channel', 'height', 'width'], traced=[1, 3, 8, 8], dynamic=['batch'])
    runner = load(tmp_path, dict(file='model.pt', backend='torchscript', inputs=[spec]), torch.device('cpu'))
    image = torch.rand(2, 3, 8, 8)
    assert torch.equal(torch.as_tensor(runner(image)), image * 2)
    with pytest.raises(ValueError, match=r'^mmexport: height is 9, and this file takes 8 only$'):
        runner(torch.rand(2, 3, 9, 8))
    assert torch.equal(Guarded(lambda image: (image,), {})(image)[0], image)


@pytest.mark.parametrize(('found', 'words'), [
    (dict(inputs=[{'image'}], outputs=[{'labels', 'labels:0'}, {'logits'}]), None),
    (dict(inputs=[{'x'}], outputs=[{'labels'}, {'logits'}]), 'the inputs of the file are named x, and the manifest has image'),
    (dict(inputs=[{'image'}], outputs=[{'logits', 'a'}, {'labels'}]),
     'the outputs of the file are named a/logits, labels, and the manifest has labels, logits'),
    (dict(outputs=[{'labels'}]), 'the outputs of the file are named labels, and the manifest has labels, logits'),
    (dict(others=[{'labels'}]), None)])
def test_load_checks_input_and_output_names(found: dict[str, list[set[str]]], words: str | None,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = dict(file='model', inputs=[dict(name='image')], outputs=[dict(name='labels'), dict(name='logits')])
    module = SimpleNamespace(load=lambda file, device: lambda image: (image,), names=lambda runner: found)
    monkeypatch.setattr(files, 'runner_of', lambda manifest: module)
    if words is None:
        load(Path(), manifest, torch.device('cpu'))
    else:
        with pytest.raises(ValueError, match=f'^{words}$'):
            load(Path(), manifest, torch.device('cpu'))
    # A manifest that names nothing asks for nothing.
    load(Path(), dict(file='model', inputs=[{}]), torch.device('cpu'))


def test_unknown_backend_has_no_loader() -> None:
    torchscript = runner_of(dict(backend='torchscript'))
    assert torchscript is runner_of(dict(backend='torchscript'))
    assert str(torchscript.__file__).endswith('backends/torchscript/runner.py')
    for backend in ('tflite', '__init__', 'exported', '../checker'):
        with pytest.raises(ValueError, match=f"^no loader for backend '{backend}': name its runner.py with --runner$"):
            runner_of(dict(backend=backend))


def test_a_runner_outside_mmexport_is_found_once_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('mmexport.checker.files._others', {})
    (tmp_path / 'runner.py').write_text('def load(file, device):\n    return lambda image: (image * 2,)\n')
    add_runner('halves', tmp_path / 'runner.py')
    runner = load(tmp_path, dict(file='model.any', backend='halves'), torch.device('cpu'))
    assert torch.equal(runner(torch.ones(1))[0], torch.full((1,), 2.0))


def test_load_passes_device_and_compares_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []

    def load_file(file: Path, device: torch.device) -> str:
        loaded.append((file, device))
        return 'runner'

    module = SimpleNamespace(load=load_file, names=lambda runner: {'outputs': [{f'{runner} logits'}]})
    monkeypatch.setattr('mmexport.checker.files.runner_of', lambda manifest: module)
    manifest = dict(file='model.pt', backend='any', outputs=[dict(name='runner logits')])
    assert load(tmp_path, manifest, torch.device('meta')).runner == 'runner'
    assert loaded == [(tmp_path / 'model.pt', torch.device('meta'))]
    with pytest.raises(ValueError, match='the outputs of the file are named runner logits, and the manifest has logits'):
        load(tmp_path, {**manifest, 'outputs': [dict(name='logits')]}, torch.device('cpu'))


@pytest.mark.parametrize(('written', 'words'), [
    ('99.0.0+cpu', r"^model.pt was written with torch 99.0.0 \(here [0-9.a-z]+\), and does not load: KeyError: 'version'; check it with "),
    (torch.__version__, '^.version.$'), (None, '^.version.$')])
def test_a_file_of_another_torch_is_refused_in_words(written: str | None, words: str, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    def load_file(file: Path, device: torch.device) -> None:
        raise KeyError('version')

    monkeypatch.setattr('mmexport.checker.files.runner_of', lambda manifest: SimpleNamespace(load=load_file))
    with pytest.raises((ValueError, KeyError), match=words):
        load(tmp_path, dict(file='model.pt', backend='any', versions=dict(torch=written)), torch.device('cpu'))
