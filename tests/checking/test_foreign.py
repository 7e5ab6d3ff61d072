"""A stranger's folder is verified without running anything of his."""
from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mmexport.checking.admission import why_refused
from mmexport.checking.conditions import refused
from mmexport.checking.foreign import Untrusted, refuse_foreign

MANIFEST = dict(mmexport=2, backend='torch_export', file='model.pt2')


class Trap:
    """A pickle that writes a file when it is loaded."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return Path.touch, (self.place,)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    exported = torch.export.export(nn.Conv2d(3, 2, 1), (torch.zeros(1, 3, 4, 4),))
    torch.export.save(exported, tmp_path / 'model.pt2')
    return tmp_path


def with_entry(folder: Path, suffix: str, content: bytes) -> None:
    """Rewrite the archive, with `content` for the entry that ends with `suffix`, or as one more."""
    with zipfile.ZipFile(folder / 'model.pt2') as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    root = next(iter(entries)).split('/')[0]
    name = next((name for name in entries if name.endswith(suffix)), f'{root}/{suffix}')
    with zipfile.ZipFile(folder / 'model.pt2', 'w') as archive:
        for key, value in {**entries, name: content}.items():
            archive.writestr(key, value)


def test_a_plain_program_is_read(program: Path) -> None:
    refuse_foreign(program, MANIFEST, trust=False)


@pytest.mark.parametrize('suffix', ['data/sample_inputs/model.pt', 'data/constants/custom_obj_0', 'data/aotinductor/model/x.so'])
def test_what_could_run_code_is_refused_and_not_run(suffix: str, program: Path) -> None:
    place = program / 'touched'
    with_entry(program, suffix, pickle.dumps(Trap(place)))
    with pytest.raises(Untrusted, match='--trust'):
        refuse_foreign(program, MANIFEST, trust=False)
    assert not place.exists()
    refuse_foreign(program, MANIFEST, trust=True)


def test_native_code_needs_trust(tmp_path: Path) -> None:
    with pytest.raises(Untrusted, match='machine code'):
        refuse_foreign(tmp_path, dict(MANIFEST, backend='aotinductor'), trust=False)


@pytest.mark.parametrize(('change', 'words'), [
    (dict(mmexport=99), 'update mmexport'),
    (dict(backend='torchscript', precision='float16'), 'torchscript files of mmexport do not have'),
    (dict(backend='openvino', precision='float16'), 'do not have')])
def test_a_manifest_that_cannot_be_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        refuse_foreign(tmp_path, {**MANIFEST, **change}, trust=True)


def test_an_older_folder_is_taken(tmp_path: Path) -> None:
    refuse_foreign(tmp_path, dict(mmexport=1, backend='torchscript', file='model.pt'), trust=False)


def test_verify_says_that_it_needs_trust(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mmexport.artifact import sha256
    from mmexport.checking.main import main
    from mmexport.checking.samples import Sample, write_samples
    place = program / 'touched'
    with_entry(program, 'data/sample_inputs/model.pt', pickle.dumps(Trap(place)))
    manifest = dict(MANIFEST, sha256=sha256(program / 'model.pt2'), inputs=[], outputs=[], num_classes=2)
    (program / 'manifest.json').write_text(json.dumps(manifest))
    write_samples(program / 'samples.npz', [Sample('a', torch.zeros(1, 3, 4, 4), {})], dict(tolerance=1e-4, floors={}))
    assert main([str(program)]) == 2
    assert '--trust' in capsys.readouterr().err
    assert not place.exists()


def test_conditions_are_arithmetic_and_nothing_else() -> None:
    sizes = dict(batch=2, height=96, width=200)
    assert refused(['2*(((width - 1)//4)) <= 3*(((height - 1)//4)) + 30'], sizes) is None
    assert refused(['Ne(((height - 1)//4), 23)'], sizes) == 'Ne(((height - 1)//4), 23)'
    assert refused(['Ne(((height - 1)//4), 24)', 'Max(height, width) <= 500', 'Eq(Mod(height, 32), 0)'], sizes) is None
    assert refused(['3*height >= 2*width'], sizes) == '3*height >= 2*width'
    for wrong in ('__import__("os").getcwd()', 'height.__class__', 'other > 3', 'open("x")'):
        with pytest.raises(ValueError, match='no arithmetic'):
            refused([wrong], sizes)


@pytest.mark.parametrize(('shape', 'words'), [
    ((1, 3, 96, 128), None), ((1, 3, 96), '3 axes'), ((1, 4, 96, 128), 'channel is 4'), ((1, 3, 512, 128), 'height is 512'),
    ((20, 3, 96, 128), 'batch is 20'), ((1, 3, 100, 128), 'multiples of 32'), ((1, 3, 160, 128), 'does not hold')])
def test_an_input_that_was_not_declared_is_refused_in_words(shape: tuple[int, ...], words: str | None) -> None:
    spec = dict(axes=['batch', 'channel', 'height', 'width'], traced=[1, 3, 96, 128], dynamic=['batch', 'height', 'width'],
                ranges=dict(batch=[1, 9], height=[64, 256], width=[64, 256]), multiple_of=32, conditions=['Ne(height, 160)'])
    reason = why_refused(spec, torch.zeros(shape))
    assert reason is None if words is None else words in str(reason)
