from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch

from mmexport.adapters import build_adapter
from mmexport.artifact import Artifact
from mmexport.backends import build_backend
from mmexport.backends.torchscript.backend import TorchScript
from mmexport.backends.torchscript.graph import count_kinds, device_literals
from mmexport.errors import ConfigError, LoweringError
from mmexport.inputs.synthetic import picture
from mmexport.patching import patched
from tests.tiny import SHAPE, seeded


@pytest.fixture(scope='module')
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    adapter = build_adapter(seeded('mask2former_r50'))
    with patched('auto'):
        return build_backend('torchscript').lower(adapter, picture(SHAPE, 0, adapter), tmp_path_factory.mktemp('a'), {'task': 'x'})


def test_manifest_is_beside_the_file_and_inside(artifact: Artifact) -> None:
    extra = {'manifest.json': ''}
    torch.jit.load(str(artifact.file), _extra_files=extra)
    inside, beside = json.loads(extra['manifest.json']), json.loads((artifact.folder / 'manifest.json').read_text())
    assert inside['task'] == 'x'
    assert 'sha256' not in inside
    assert {key: beside[key] for key in inside} == inside
    assert len(beside['sha256']) == 64


def test_frozen_and_fused(artifact: Artifact) -> None:
    steps = artifact.manifest['torchscript']
    assert steps['optimize_numerics'] is True
    assert steps['optimize_for_inference'] is False
    assert steps['fused']['conv_bn_folded'] == 53
    graph = torch.jit.load(str(artifact.file)).inlined_graph
    kinds = count_kinds(graph)
    assert kinds['aten::batch_norm'] == 0
    assert not any('mkldnn' in kind or 'prim::Python' in kind or 'mmexport' in kind for kind in kinds)


def test_no_device_is_written_into_the_file(artifact: Artifact) -> None:
    assert artifact.manifest['torchscript']['device_literals_fixed'] >= 1
    assert artifact.manifest['torchscript']['device_literals'] == 0
    assert device_literals(torch.jit.load(str(artifact.file)).inlined_graph) == []


def test_the_manifest_lists_what_stops_half(artifact: Artifact) -> None:
    """Frozen weights do not follow half(), and these operators name a dtype of their own."""
    listed = {(row['op'], row['dtype']): row['at'] for row in artifact.manifest['torchscript']['dtype_literals']}
    assert listed['aten::zeros_like', 'float32'].startswith('bricks/transformer.py:')
    assert ('aten::to', 'float64') in listed


@pytest.mark.parametrize(('image', 'words'), [
    (torch.zeros(3, 64, 64), 'must have 4 axes'), (torch.zeros(1, 4, 64, 64), 'takes 3 only'),
    (torch.zeros(1, 3, 64, 64, dtype=torch.uint8), 'must be float32')])
def test_an_input_that_was_not_exported_is_refused_in_words(artifact: Artifact, image: torch.Tensor, words: str) -> None:
    with pytest.raises(Exception, match=words):
        build_backend('torchscript').load(artifact, 'cpu')(image)


@pytest.mark.gpu
def test_file_made_on_the_cpu_runs_on_cuda(artifact: Artifact) -> None:
    image = torch.randn(SHAPE)
    backend = build_backend('torchscript')
    on_cpu, on_cuda = backend.load(artifact, 'cpu')(image), backend.load(artifact, 'cuda')(image.cuda())
    assert all(output.is_cuda for output in on_cuda)
    assert float((on_cpu[0] == on_cuda[0].cpu()).double().mean()) > 0.999


def test_without_numerics_nothing_is_folded(tmp_path: Path) -> None:
    adapter = build_adapter(seeded('segformer_b0'))
    with patched('auto'):
        made = build_backend(dict(type='TorchScript', optimize_numerics=False)).lower(adapter, picture(SHAPE, 0, adapter), tmp_path, {})
    assert made.manifest['torchscript']['fused']['conv_bn_folded'] == 0


def test_what_cannot_be_traced_is_a_lowering_error(tmp_path: Path) -> None:
    adapter = build_adapter(seeded('segformer_b0'))
    with pytest.raises(LoweringError, match='torch.jit.trace of EncoderDecoder failed'):
        build_backend('torchscript').lower(adapter, torch.zeros(1, 3), tmp_path, {})


def test_unknown_backends_and_options_are_named() -> None:
    with pytest.raises(ConfigError, match='torchscript'):
        build_backend('onyx')
    with pytest.raises(ConfigError, match='optimise'):
        build_backend(dict(type='TorchScript', optimise=True))


def test_an_axis_that_was_not_declared_dynamic_is_refused(tmp_path: Path) -> None:
    from mmexport.export.exporter import Exporter
    from tests.tiny import tiny
    cfg = tiny('segformer_b0', outputs='raw', inputs=dict(dynamic=('batch',)), verify=dict(shapes=None))
    report, = Exporter(cfg, model=seeded('segformer_b0'), work_dir=tmp_path).run()
    assert report.passed, report.reasons
    loaded = torch.jit.load(str(tmp_path / 'torchscript' / 'model.pt'))
    assert loaded(torch.randn(3, *SHAPE[1:]))[0].shape[0] == 3
    with pytest.raises(Exception, match='axis height of image has size 96, and this file takes'):
        loaded(torch.randn(1, 3, 96, 96))


class Talkative(torch.nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        warnings.warn('a line of the user', UserWarning, stacklevel=1)
        return image * int(image.shape[2])


def test_every_warning_about_a_line_of_the_user_is_kept() -> None:
    _, message = TorchScript._trace(Talkative(), (torch.zeros(1, 3, 8, 8),))
    assert len(message) == 2
    assert all(warning['file'] == __file__ for warning in message)
    assert message[0]['message'] == 'a line of the user'
