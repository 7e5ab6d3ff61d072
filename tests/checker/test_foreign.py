"""A stranger's folder is verified without running anything of his."""
from __future__ import annotations

import json
import re
import zipfile
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmexport.checker.files import runner_of
from mmexport.checker.foreign import Untrusted, refuse_foreign, schema_of
from mmexport.checker.main import main

MANIFEST = dict(mmexport=2, backend='torchscript', file='model.pt')


class Plain(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return image * 2


class Writes(nn.Module):
    """Writes its input into a file, with operators of TorchScript alone."""

    def forward(self, image: Tensor) -> Tensor:
        written = torch.from_file('touched', shared=True, size=image.numel(), dtype=torch.float32).copy_(image.flatten())
        return image * 2 + written.sum() * 0


class WritesOnLoad(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.training = False

    @torch.jit.export
    def __getstate__(self) -> int:
        return 1

    @torch.jit.export
    def __setstate__(self, state: int) -> None:
        self.training = bool(torch.from_file('touched', shared=True, size=4, dtype=torch.float32).zero_().sum() > 0)

    def forward(self, image: Tensor) -> Tensor:
        return image * 2


def folder_with(folder: Path, model: nn.Module) -> Path:
    from mmexport.artifact import sha256
    from mmexport.checker.samples import Sample, write_samples
    torch.jit.script(model).save(str(folder / 'model.pt'))
    outputs = [dict(name='out', kind='pixels', dtype='float32')]
    manifest = dict(MANIFEST, sha256=sha256(folder / 'model.pt'), inputs=[], outputs=outputs, num_classes=2)
    (folder / 'manifest.json').write_text(json.dumps(manifest))
    images = {name: torch.rand(1, 3, 4, 4) for name in ('a', 'b')}
    write_samples(folder / 'samples.npz', [Sample(name, image, dict(out=image * 2)) for name, image in images.items()],
                  dict(tolerance=1e-4, floors={}, noise=1e-6))
    return folder


def refuse(folder: Path, manifest: dict[str, Any], trust: bool) -> None:
    refuse_foreign(folder, manifest, trust, runner_of(manifest))


def test_main_checks_a_plain_module(tmp_path: Path) -> None:
    assert main([str(folder_with(tmp_path, Plain()))]) == 0


@pytest.mark.parametrize('model', [Writes, WritesOnLoad])
def test_file_operators_are_refused_before_loading(model: type[nn.Module], tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / 'folder').mkdir()
    folder = folder_with(tmp_path / 'folder', model())
    monkeypatch.chdir(tmp_path)
    assert main([str(folder)]) == 2
    assert 'from_file' in capsys.readouterr().err
    assert not (tmp_path / 'touched').exists()
    # The trap is one: trusted, it writes.
    main([str(folder), '--trust'])
    assert (tmp_path / 'touched').exists()


def test_duplicate_zip_entries_are_refused(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, Plain())
    with pytest.warns(UserWarning), zipfile.ZipFile(folder / 'model.pt', 'a') as archive:
        archive.writestr(archive.namelist()[0], b'')
    with pytest.raises(Untrusted, match='two entries'):
        refuse(folder, MANIFEST, trust=False)


def test_torch_export_file_needs_trust(tmp_path: Path) -> None:
    """Its loader evaluates the sizes in the file with sympy, which runs them."""
    exported = torch.export.export(nn.Conv2d(3, 2, 1), (torch.zeros(1, 3, 4, 4),),
                                   dynamic_shapes=({2: torch.export.Dim.AUTO},))
    torch.export.save(exported, tmp_path / 'plain.pt2')
    place = tmp_path / 'touched'
    trap = json.dumps(f"__import__('pathlib').Path('{place}').touch() or 7")
    with zipfile.ZipFile(tmp_path / 'plain.pt2') as plain, zipfile.ZipFile(tmp_path / 'model.pt2', 'w') as changed:
        for name in plain.namelist():
            content = plain.read(name)
            if name.endswith('models/model.json'):
                content = re.sub(r'"expr_str": "Symbol\([^"]*\)"', f'"expr_str": {trap}', content.decode()).encode()
            changed.writestr(name, content)
    manifest = dict(mmexport=2, backend='torch_export', file='model.pt2')
    with pytest.raises(Untrusted, match='--trust'):
        refuse(tmp_path, manifest, trust=False)
    assert not place.exists()
    with suppress(Exception):  # Whatever it says of the symbol that it got for it.
        torch.export.load(tmp_path / 'model.pt2')
    assert place.exists()


def test_native_code_needs_trust(tmp_path: Path) -> None:
    with pytest.raises(Untrusted, match='machine code'):
        refuse(tmp_path, dict(MANIFEST, backend='aotinductor'), trust=False)


@pytest.mark.parametrize(('change', 'words'), [
    (dict(mmexport=99), 'update mmexport'),
    (dict(backend='torchscript', precision='float16'), 'torchscript files of mmexport do not have'),
    (dict(backend='openvino', precision='float16'), 'do not have')])
def test_impossible_manifest_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        refuse(tmp_path, {**MANIFEST, **change}, trust=True)


def test_older_schema_is_checked_with_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_with(tmp_path, Plain())
    manifest = json.loads((folder / 'manifest.json').read_text())
    (folder / 'manifest.json').write_text(json.dumps({**manifest, 'mmexport': 1}))
    assert main([str(folder)]) == 0
    assert 'schema 1' in capsys.readouterr().out


def test_only_code_of_a_file_is_searched(tmp_path: Path) -> None:
    for entry, refused in (('archive/data/0', False), ('archive/code/model.py', True)):
        with zipfile.ZipFile(tmp_path / 'model.pt', 'w') as archive:
            archive.writestr(entry, 'ops.prim.save(x)')
        with pytest.raises(Untrusted, match=r'beyond the model: --trust, if you trust who made it$') if refused else nullcontext():
            refuse(tmp_path, MANIFEST, False)


def test_manifest_without_a_schema_has_the_first() -> None:
    assert schema_of({}) == 1
    assert schema_of({'mmexport': '2'}) == 2


@pytest.mark.parametrize(('backend', 'precision', 'known'), [('onnx', 'float16', True), ('onnx', 'bfloat16', False),
                                                             ('openvino', 'bfloat16', True), ('torchscript', 'float16', False)])
def test_each_format_has_its_precisions(backend: str, precision: str, known: bool, tmp_path: Path) -> None:
    manifest = {**MANIFEST, 'backend': backend, 'precision': precision}
    with nullcontext() if known else pytest.raises(ValueError, match=f'^its manifest says {precision}, which {backend} files of mmexport'):
        refuse(tmp_path, manifest, True)
