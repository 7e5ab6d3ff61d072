"""Check that samples survive their file, and that pickles are refused."""
from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from mmexport.checker.samples import Sample, read_samples, write_samples

GENERATOR = torch.Generator().manual_seed(0)
FULL = Sample(
    'wide', torch.randn(1, 3, 4, 6, generator=GENERATOR), expected=dict(labels=torch.ones(1, 4, 6, dtype=torch.int32)),
    evidence=dict(margin=torch.rand(1, 4, 6), near=torch.ones(1, 4, 6, dtype=torch.bool)),
    patched=dict(labels=torch.zeros(1, 4, 6, dtype=torch.int32)), floors=dict(labels=0.25), raw=dict(logits=torch.rand(1, 2, 4, 6)),
    raw_evidence=dict(exempt=torch.zeros(1, 4, 6, dtype=torch.bool)))
PLAIN = Sample('tall', torch.zeros(1, 3, 6, 4), expected=dict(labels=torch.zeros(1, 6, 4, dtype=torch.int32)))


def same(one: Sample, other: Sample) -> bool:
    parts = [(one.image, other.image)]
    for name in ('expected', 'evidence', 'patched', 'raw', 'raw_evidence'):
        assert list(getattr(one, name)) == list(getattr(other, name))
        parts += [(tensor, getattr(other, name)[key]) for key, tensor in getattr(one, name).items()]
    return (one.name, one.floors) == (other.name, other.floors) and all(
        torch.equal(first, second) and first.dtype == second.dtype for first, second in parts)


def test_samples_round_trip(tmp_path: Path) -> None:
    # More than ten, of which "1" is not to be taken for "10".
    written = [FULL, PLAIN, *[Sample(f's{number}', torch.full((1, 3, 2, 2), number), {}) for number in range(10)]]
    write_samples(tmp_path / 's.npz', written, dict(tolerance=1e-4, floors=dict(labels=0.5)))
    read, extra = read_samples(tmp_path / 's.npz')
    assert extra == dict(tolerance=1e-4, floors=dict(labels=0.5))
    assert len(read) == len(written)
    assert all(same(one, other) for one, other in zip(written, read, strict=True))


def test_samples_file_is_plain_npz(tmp_path: Path) -> None:
    write_samples(tmp_path / 's.npz', [FULL, PLAIN], dict(tolerance=1e-4))
    content = np.load(tmp_path / 's.npz', allow_pickle=False)
    assert set(content.files) == {'index', '0/image', '0/expected/labels', '0/evidence/margin', '0/evidence/near', '0/patched/labels',
                                  '0/raw/logits', '0/raw_evidence/exempt', '1/image', '1/expected/labels'}
    assert json.loads(str(content['index']))['samples'] == [dict(name='wide', floors=dict(labels=0.25)), dict(name='tall', floors={})]


def test_samples_compress_masks_only(tmp_path: Path) -> None:
    write_samples(tmp_path / 's.npz', [FULL], {})
    with zipfile.ZipFile(tmp_path / 's.npz') as archive:
        kinds = {info.filename: info.compress_type for info in archive.infolist()}
    assert kinds['0/image.npy'] == kinds['index.npy'] == zipfile.ZIP_STORED
    assert kinds['0/evidence/near.npy'] == kinds['0/expected/labels.npy'] == zipfile.ZIP_DEFLATED


def test_read_samples_refuses_pickles(tmp_path: Path) -> None:
    with open(tmp_path / 's.npz', 'wb') as file:
        np.savez(file, index=np.array([print], dtype=object))
    with pytest.raises(ValueError, match='allow_pickle=False'):
        read_samples(tmp_path / 's.npz')


def test_sample_nbytes_counts_all_parts() -> None:
    """Floats as they are; what is deflated counts an eighth of itself, each tensor for itself."""
    image, margin, logits = 3 * 24 * 4, 24 * 4, 2 * 24 * 4
    labels, masks = 24 * 4 // 8, 24 // 8
    assert FULL.nbytes == image + labels + margin + masks + labels + logits + masks
    assert PLAIN.nbytes == image + labels


def test_floats_are_stored_and_masks_deflated(tmp_path: Path) -> None:
    sample = Sample('s', torch.rand(1, 3, 8, 8), {'masks': torch.zeros(1, 8, 8, dtype=torch.bool)})
    write_samples(tmp_path / 'samples.npz', [sample], {})
    with zipfile.ZipFile(tmp_path / 'samples.npz') as archive:
        kinds = {info.filename: info.compress_type for info in archive.infolist()}
    assert kinds['0/image.npy'] == zipfile.ZIP_STORED
    assert kinds['0/expected/masks.npy'] == zipfile.ZIP_DEFLATED
