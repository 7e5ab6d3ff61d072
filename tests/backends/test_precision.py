"""Test files in fewer bits: their own rules, what stays in float32, and that the rules can fail."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport import Exporter
from mmexport.adapters.specs import IMAGE
from mmexport.backends import build_backend
from mmexport.backends.onnx.backend import ONNX
from mmexport.checker.compare import compare
from mmexport.errors import ConfigError
from mmexport.ops.deformable_attention.probe import AttentionProbe
from mmexport.ops.op import with_forms
from tests.tiny import seeded, tiny

SPECS = [dict(name='logits', dtype='float32', kind='pixels')]


@pytest.mark.parametrize(('name', 'spec', 'precision'), [
    ('fcn', dict(type='ONNX', precision='fp16'), 'float16'), ('fcn', dict(type='OpenVINO', precision='bf16'), 'bfloat16'),
    # Its attention ends the process of ONNX Runtime where all optimizations are on; and simplified before it is halved.
    ('segformer_b0', dict(type='ONNX', precision='fp16', simplify=True), 'float16')])
def test_a_file_of_fewer_bits_has_its_own_rule(tmp_path: Path, name: str, spec: dict[str, Any], precision: str) -> None:
    report, = Exporter(tiny(name, outputs='raw', backends=[spec]), work_dir=tmp_path, model=seeded(name)).run()
    assert report.passed, report.reasons
    assert report.artifacts[0].manifest['precision'] == precision
    assert all(row.precision == precision and row.rule.startswith(precision) for row in report.checks[0].rows)
    assert any(precision in line for line in report.lines())
    kept = json.loads((tmp_path / 'report.json').read_text())
    assert f'{precision}: median' in json.dumps(kept['artifacts'])


def test_float16_halves_an_onnx_file(tmp_path: Path) -> None:
    size = {}
    for precision in ('fp32', 'fp16'):
        made = Exporter(tiny('fcn', outputs='raw', backends=[dict(type='ONNX', precision=precision)]), work_dir=tmp_path / precision,
                        model=seeded('fcn'), checking=False).run()[0].artifacts[0]
        size[precision] = made.file.stat().st_size
    assert size['fp16'] < 0.6 * size['fp32']


def test_places_are_sampled_in_float32() -> None:
    """Of deformable attention in float16, the places stay exact, and they are named."""
    import onnx
    import onnxruntime

    from mmexport.backends.onnx.half import halved
    probe = AttentionProbe()
    with torch.no_grad(), with_forms(deformable_attention='grid'):
        program = torch.export.export(probe, (torch.zeros(2, 3, 16, 16),), strict=False)
        proto = ONNX().convert(program, Path(), ['sampled'], (IMAGE,))
    made, half = halved(proto)
    kept = half['float32']
    assert kept['sampling_locations'] and 'GridSample' in kept['operators'] and 'Softmax' in kept['operators']
    types = {info.name: info.type.tensor_type.elem_type for info in onnx.shape_inference.infer_shapes(made).graph.value_info}
    grids = [node.input[1] for node in made.graph.node if node.op_type == 'GridSample']
    assert grids and all(types[name] == onnx.TensorProto.FLOAT for name in grids)
    image = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=['CPUExecutionProvider'])
    actual = torch.from_numpy(session.run(None, {'image': image.numpy()})[0])
    expected = probe(image)[0]
    assert float((actual - expected).abs().max()) < 2e-2 * float(expected.abs().max())


def _logits() -> Tensor:
    return torch.randn(2, 8, 32, 32, generator=torch.Generator().manual_seed(0))


def _second_best(logits: Tensor) -> Tensor:
    """In two columns of 32 the best class and the next change places, which moves few numbers by little."""
    best = logits.topk(2, dim=1)
    swapped = logits.scatter(1, best.indices, best.values.flip(1))
    return torch.where(torch.arange(32) < 2, swapped, logits)


@pytest.mark.parametrize(('spoil', 'word'), [
    (lambda x: x.half().float(), None),
    (lambda x: x * 1.05, 'median error'),
    (lambda x: x.roll(1, 1), 'median error'),
    (lambda x: torch.where(torch.arange(32) < 2, x.roll(1, 1), x), 'cosine'),
    (_second_best, 'clear_agreement'),
    # Half of the pixels of a batch of two; a plain median of an even number takes the lower one.
    (lambda x: x * torch.tensor([1.0, 0.9])[:, None, None, None], 'median error'),
    (lambda x: x.index_put((torch.tensor(0), torch.tensor(0), torch.tensor(0), torch.tensor(0)), torch.tensor(1000.0)), 'cosine'),
    (lambda x: x.clone().index_fill_(3, torch.tensor(0), float('nan')), 'NaN'),
])
def test_the_rule_of_float16_can_fail(spoil: object, word: str | None) -> None:
    logits = _logits()
    row, = compare(SPECS, {'logits': logits}, [spoil(logits)], {}, sample='s', stage='artifact vs eager',  # type: ignore[operator]
                   precision='float16')
    assert row.passed if word is None else word in str(row.reason)


def test_another_word_is_refused() -> None:
    for kind in ('ONNX', 'OpenVINO', 'TensorRT'):
        with pytest.raises(ConfigError, match='precision is'):
            build_backend(dict(type=kind, precision='int8'))
