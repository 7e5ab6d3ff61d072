"""Test that a stranger's folder is verified without running anything of his."""
from __future__ import annotations

import json
import re
import struct
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
from tests.programs import needs_program

MANIFEST = dict(mmexport=2, backend='torchscript', file='model.pt')


class Plain(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return image * 2


class Writes(nn.Module):
    """Write its input into a file, with operators of TorchScript alone."""

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


def records(file: Path, **content: bytes) -> None:
    """Write an archive as torch does; names have `__` for a slash."""
    writer = torch._C.PyTorchFileWriter(str(file))
    for name, value in content.items():
        writer.write_record(name.replace('__', '/'), value, len(value))
    writer.write_end_of_file()


def rewritten(file: Path, other: Path, old: bytes, new: bytes, suffix: str = '.py') -> None:
    """Replace `old` in the code of an archive."""
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(other, 'w', zipfile.ZIP_STORED) as copy:
        for name in archive.namelist():
            content = archive.read(name)
            code = name.endswith('.py') and old in content
            copy.writestr(name[:-3] + suffix if code else name, content.replace(old, new) if code else content)


@pytest.mark.parametrize(('new', 'suffix'), [(b'torch.from_file # a comment\n    (', '.py'), (b'torch.from_file(', '.PY')])
def test_file_operators_are_found_however_they_are_written(new: bytes, suffix: str, tmp_path: Path) -> None:
    """A comment before the bracket, and a name that torch's reader finds in upper case too."""
    (tmp_path / 'folder').mkdir()
    folder = folder_with(tmp_path / 'folder', Writes())
    rewritten(folder / 'model.pt', tmp_path / 'other.pt', b'torch.from_file(', new, suffix)
    with pytest.raises(Untrusted, match='calls from_file'):
        refuse(tmp_path, dict(MANIFEST, file='other.pt'), trust=False)


def test_an_archive_is_read_as_the_loader_reads_it(tmp_path: Path) -> None:
    """A file with two tables of contents: Python's zipfile takes the last, torch the one that the end record points at."""
    (tmp_path / 'folder').mkdir()
    folder = folder_with(tmp_path / 'folder', Writes())
    (tmp_path / 'model.pt').write_bytes(two_tables((folder / 'model.pt').read_bytes(), b'torch.from_file(', tmp_path))
    with zipfile.ZipFile(tmp_path / 'model.pt') as archive:
        assert not any(b'from_file' in archive.read(name) for name in archive.namelist() if name.endswith('.py'))
    with pytest.raises(Untrusted, match='calls from_file'):
        refuse(tmp_path, MANIFEST, trust=False)


def two_tables(evil: bytes, word: bytes, folder: Path) -> bytes:
    """Join an archive and a harmless copy of the same lengths: entries, table, entries of the copy, table of the copy, one end record."""
    (folder / 'evil.zip').write_bytes(evil)
    for name, new in (('plain', word), ('harmless', b'x' * len(word))):
        rewritten(folder / 'evil.zip', folder / f'{name}.zip', word, new)
    parts = []
    for name in ('plain', 'harmless'):
        content = (folder / f'{name}.zip').read_bytes()
        end = content.rfind(b'PK\5\6')
        count, size, offset = struct.unpack('<HII', content[end + 10:end + 20])
        parts.append((content[:offset], bytearray(content[offset:end]), count, size, offset))
    (entries, table, count, size, offset), (other_entries, other_table, *_) = parts
    shift = len(entries) + len(table)
    # What zipfile takes for bytes before the archive, and adds to each offset.
    before = shift + len(other_entries) - offset
    place = 0
    for _ in range(count):
        lengths = struct.unpack('<HHH', other_table[place + 28:place + 34])
        start = struct.unpack('<I', other_table[place + 42:place + 46])[0]
        struct.pack_into('<I', other_table, place + 42, (shift + start - before) & 0xffffffff)
        place += 46 + sum(lengths)
    end_record = struct.pack('<4s4H2LH', b'PK\5\6', 0, 0, count, count, size, offset, 0)
    return entries + bytes(table) + other_entries + bytes(other_table) + end_record


@needs_program
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
    for entry, refused in (('data__0', False), ('code__model.py', True)):
        records(tmp_path / 'model.pt', **{entry: b'ops.prim.save(x)'})
        with pytest.raises(Untrusted, match=r'beyond the model: --trust, if you trust who made it$') if refused else nullcontext():
            refuse(tmp_path, MANIFEST, False)


@pytest.mark.parametrize(('code', 'refused'), [(b"x = 'save (y)'", False), (b'x = y.saved', False), (b'x = torch . save (y)', True),
                                               (b'x = (torch.save', True)])
def test_names_in_code_count_and_words_in_strings_do_not(code: bytes, refused: bool, tmp_path: Path) -> None:
    """The last one cannot be split into tokens, and is searched as it is."""
    records(tmp_path / 'model.pt', **{'code__model.py': code})
    with pytest.raises(Untrusted) if refused else nullcontext():
        refuse(tmp_path, MANIFEST, False)


def test_what_torch_cannot_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / 'model.pt').write_bytes(b'PK no archive')
    with pytest.raises(Untrusted, match='no archive that torch can read'):
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
