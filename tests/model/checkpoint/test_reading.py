"""Test checkpoints as they come: mmengine's own, wrapped, half, foreign, malicious, broken."""
from __future__ import annotations

import collections
import datetime
import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mmexport.errors import CheckpointError
from mmexport.model.checkpoint import read_state_dict
from tests.model.checkpoint.conftest import save


@pytest.mark.parametrize('wrap', ['state_dict', 'model', None])
@pytest.mark.parametrize('prefix', ['', 'module.', 'module._orig_mod.'])
def test_layouts_and_prefixes(tmp_path: Path, model: nn.Module, wrap: str | None, prefix: str) -> None:
    weights = {f'{prefix}{key}': value for key, value in model.state_dict().items()}
    path = save(tmp_path / 'c.pth', {wrap: weights, 'meta': {'epoch': 1}} if wrap else weights)
    state = read_state_dict(path)
    assert state.tensors.keys() == model.state_dict().keys()
    assert torch.equal(state.tensors['0.weight'], model.state_dict()['0.weight'])


@pytest.mark.parametrize('zipped', [True, False])
def test_both_file_formats_of_torch(tmp_path: Path, model: nn.Module, zipped: bool) -> None:
    torch.save({'state_dict': model.state_dict()}, tmp_path / 'c.pth', _use_new_zipfile_serialization=zipped)
    assert len(read_state_dict(tmp_path / 'c.pth').tensors) == len(model.state_dict())


def test_metadata_is_inert(tmp_path: Path, model: nn.Module) -> None:
    from mmengine.config import ConfigDict
    from mmengine.logging import HistoryBuffer
    meta = dict(time=datetime.datetime(2026, 1, 1), scalar=np.float64(1.5), array=np.arange(3), dtype=np.dtype('float32'), cfg=ConfigDict(
        a=ConfigDict(b=1)), counts=collections.defaultdict(int, a=1), queue=collections.deque([1, 2]), integer=np.int64(3),
        classes=('cat', 'dog'), device=torch.device('cpu'), size=torch.Size([1, 2]), kind=torch.float16)
    path = save(tmp_path / 'c.pth', {'state_dict': model.state_dict(), 'meta': meta,
                                     'message_hub': {'log_scalars': {'loss': HistoryBuffer([1.0, 2.0], [1, 1])}}})
    state = read_state_dict(path)
    assert state.meta['classes'] == ('cat', 'dog')
    assert state.meta['cfg'] == {'a': {'b': 1}}


def test_half_weights_become_float_unless_asked(tmp_path: Path, model: nn.Module) -> None:
    path = save(tmp_path / 'c.pth', model.half().state_dict())
    assert read_state_dict(path).tensors['0.weight'].dtype == torch.float32
    assert read_state_dict(path, keep_half=True).tensors['0.weight'].dtype == torch.float16


def test_checkpoint_saved_on_cuda_3_is_read_on_the_cpu(tmp_path: Path, model: nn.Module) -> None:
    """Without such a machine: the location is a string in the pickle, of the same length as one can write here."""
    path = save(tmp_path / 'c.pth', model.state_dict())
    other = tmp_path / 'cuda.pth'
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(other, 'w') as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith('data.pkl'):
                assert b'X\x03\x00\x00\x00cpu' in content
                content = content.replace(b'X\x03\x00\x00\x00cpu', b'X\x06\x00\x00\x00cuda:3')
            target.writestr(name, content)
    assert read_state_dict(other).tensors['0.weight'].device.type == 'cpu'


def test_safetensors(tmp_path: Path, model: nn.Module) -> None:
    from safetensors.torch import save_file
    save_file(model.state_dict(), tmp_path / 'c.safetensors')
    assert torch.equal(read_state_dict(tmp_path / 'c.safetensors').tensors['2.weight'], model.state_dict()['2.weight'])


class Exploit:
    def __reduce__(self) -> Any:
        return os.system, (f'touch {os.environ["MMEXPORT_TEST_TARGET"]}',)


class Getter:
    """Do what a clever file would try: reach a function through the getattr that HistoryBuffer needs."""

    def __reduce__(self) -> Any:
        return getattr, (collections.OrderedDict, 'fromkeys')


@pytest.mark.parametrize(('evil', 'words'), [(Exploit(), 'system'), (Getter(), 'getattr')])
def test_foreign_pickle_is_refused_by_name_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evil: object,
                                                            words: str) -> None:
    target = tmp_path / 'touched'
    monkeypatch.setenv('MMEXPORT_TEST_TARGET', str(target))
    for zipped in (True, False):
        torch.save({'state_dict': {}, 'x': evil}, tmp_path / 'c.pth', _use_new_zipfile_serialization=zipped)
        with pytest.raises(CheckpointError, match=words):
            read_state_dict(tmp_path / 'c.pth')
    (tmp_path / 'plain.pth').write_bytes(pickle.dumps({'x': evil}))
    with pytest.raises(CheckpointError):
        read_state_dict(tmp_path / 'plain.pth')
    assert not target.exists()


def test_trust_reads_what_is_refused_otherwise(tmp_path: Path) -> None:
    from mmengine.runner import LogProcessor
    path = save(tmp_path / 'c.pth', {'state_dict': {'a': torch.ones(1)}, 'x': LogProcessor()})
    with pytest.raises(CheckpointError, match='LogProcessor.*--trust-checkpoint'):
        read_state_dict(path)
    assert read_state_dict(path, trust=True).tensors.keys() == {'a'}


def test_broken_files_are_one_line(tmp_path: Path, model: nn.Module) -> None:
    whole = save(tmp_path / 'whole.pth', model.state_dict()).read_bytes()
    torch.jit.script(nn.Linear(1, 1)).save(tmp_path / 'script.pth')
    with zipfile.ZipFile(tmp_path / 'zip.pth', 'w') as archive:
        archive.writestr('hello.txt', 'hello')
    (tmp_path / 'short.pth').write_bytes(whole[:len(whole) // 2])
    (tmp_path / 'text.pth').write_text('these are not weights\n')
    (tmp_path / 'empty.pth').write_bytes(b'')
    save(tmp_path / 'list.pth', [1, 2])
    save(tmp_path / 'nothing.pth', {'state_dict': {'a': 1}})
    (tmp_path / 'bad.safetensors').write_text('no')
    for name in ('short', 'text', 'empty', 'list', 'nothing', 'zip', 'script', 'absent'):
        with pytest.raises(CheckpointError) as caught:
            read_state_dict(tmp_path / f'{name}.pth')
        assert '\n' not in str(caught.value)
        assert f'{name}.pth' in str(caught.value)
    with pytest.raises(CheckpointError):
        read_state_dict(tmp_path / 'bad.safetensors')


def half_on_cpu() -> bool:
    """Return whether torch has a half convolution for the CPU; 2.1 has none."""
    try:
        nn.Conv2d(3, 2, 3).half()(torch.zeros(1, 3, 4, 4).half())
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize('how', [{}, pytest.param({'half': True}, marks=pytest.mark.skipif(
    not half_on_cpu(), reason='this torch has no half convolution for the CPU')), pytest.param({'amp': True}, marks=pytest.mark.gpu)])
def test_checkpoints_of_mmengines_own_runner(tmp_path: Path, how: dict[str, bool]) -> None:
    """Written by Runner, CheckpointHook and EMAHook; mmengine swaps the two sets of weights when it saves."""
    from tests.training import train
    runner = train(tmp_path, ema=True, **how)
    path = tmp_path / 'iter_4.pth'
    averaged = runner.ema_hook.ema_model.module.state_dict()
    plain = runner.model.state_dict()
    weights, ema = read_state_dict(path).tensors, read_state_dict(path, ema=True).tensors
    key = next(key for key in plain if key.endswith('conv_seg.weight'))
    slack = 1e-3 if how.get('half') else 0.0
    assert float((averaged[key] - plain[key]).abs().max()) > 2 * slack
    assert weights[key].dtype == torch.float32
    for read in (weights, ema):
        assert torch.allclose(read[key], averaged[key].cpu(), atol=slack, rtol=slack)


def test_ema_of_others_is_not_swapped(tmp_path: Path) -> None:
    path = save(tmp_path / 'c.pth', {'state_dict': {'a': torch.zeros(1)}, 'ema_state_dict': {'module.a': torch.ones(1)}})
    assert float(read_state_dict(path, ema=True).tensors['a']) == 1
    assert float(read_state_dict(path).tensors['a']) == 0
    with pytest.raises(CheckpointError, match='no averaged weights'):
        read_state_dict(save(tmp_path / 'd.pth', {'state_dict': {'a': torch.zeros(1)}}), ema=True)


@pytest.mark.parametrize('name', [('numpy.core.multiarray', 'scalar'), ('numpy._core.multiarray', 'scalar'), ('numpy', 'dtype'),
                                  ('numpy.core.multiarray', '_reconstruct'), ('numpy', 'ndarray'), ('numpy.dtypes', 'Float64DType'),
                                  ('numpy', 'float64'), ('datetime', 'datetime')])
def test_metadata_of_numpy_1_and_2_gets_a_placeholder(name: tuple[str, str]) -> None:
    from mmexport.model.checkpoint.unpickler import Inert, Unpickler
    assert Unpickler(io.BytesIO()).find_class(*name) is Inert


@pytest.mark.parametrize('name', [('numpy', 'load'), ('numpy.core.multiarray', 'fromfile'), ('builtins', 'eval'), ('os', 'system'),
                                  ('torch', 'load'), ('torch._utils', '_import_dotted_name'), ('torch.storage', '_load_from_bytes'),
                                  ('torch.jit', 'load'), ('builtins', 'setattr'), ('functools', 'partial'), ('operator', 'attrgetter')])
def test_names_that_do_something_are_refused(name: tuple[str, str]) -> None:
    from mmexport.model.checkpoint.unpickler import RefusedName, Unpickler
    with pytest.raises(RefusedName, match=name[1]):
        Unpickler(io.BytesIO()).find_class(*name)


def test_state_is_given_to_fresh_objects_only(tmp_path: Path) -> None:
    """A BUILD on a function or class would change it for the rest of the process."""
    rebuild = torch._utils._rebuild_tensor_v2
    before = rebuild.__dict__.copy()
    evil = b'\x80\x02}ctorch._utils\n_rebuild_tensor_v2\n}X\x04\x00\x00\x00markK\x01sb.'
    with pytest.raises(CheckpointError, match='attributes on _rebuild_tensor_v2'):
        from mmexport.model.checkpoint import unpickler
        unpickler.load(io.BytesIO(evil))
    assert rebuild.__dict__ == before


def test_a_torchscript_file_with_junk_behind_it_is_still_one(tmp_path: Path) -> None:
    torch.jit.script(nn.Linear(1, 1)).save(tmp_path / 'script.pth')
    with (tmp_path / 'script.pth').open('ab') as file:
        file.write(b'\0' * 68_000)
    with pytest.raises(CheckpointError, match='TorchScript|cannot read'):
        read_state_dict(tmp_path / 'script.pth')
