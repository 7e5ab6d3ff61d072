"""Test that equal scores keep their order in every form."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mmexport.ops.op import forms_for, with_forms
from mmexport.ops.ranking import ranked, rows_at

# A thousand scores of ten values.
SCORES = torch.randint(0, 10, (2, 1000), generator=torch.Generator().manual_seed(0)).float()
EXPECTED = torch.tensor([sorted(range(1000), key=lambda place: (-row[place], place)) for row in SCORES.tolist()])


class Ranking(nn.Module):
    def forward(self, scores: Tensor) -> Tensor:
        return ranked(scores)


def test_the_default_form_is_stable_in_torchs_formats() -> None:
    assert torch.equal(ranked(SCORES), EXPECTED)
    assert torch.equal(torch.jit.trace(Ranking(), SCORES)(SCORES), EXPECTED)
    assert torch.equal(torch.export.export(Ranking(), (SCORES,)).module()(SCORES), EXPECTED)


@pytest.mark.parametrize('dynamo', [True, False])
def test_onnx_ranks_so_too(tmp_path: Path, dynamo: bool) -> None:
    onnxruntime = pytest.importorskip('onnxruntime')
    with with_forms(ranking='plain'):
        torch.onnx.export(Ranking(), (SCORES,), tmp_path / 'model.onnx', dynamo=dynamo, input_names=['scores'], verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / 'model.onnx', providers=['CPUExecutionProvider'])
    assert torch.equal(torch.from_numpy(session.run(None, {'scores': SCORES.numpy()})[0]), EXPECTED)


def test_openvino_ranks_many_scores_in_time(tmp_path: Path) -> None:
    """Its stable TopK takes time that grows with the square of the number: 3 s for 40,000 scores, of which a dense head has more."""
    openvino = pytest.importorskip('openvino')
    with with_forms(**forms_for('openvino')):
        program = torch.export.export(Ranking(), (SCORES,), dynamic_shapes=({1: torch.export.Dim('scores', max=1 << 20)},))
    model = openvino.convert_model(program)
    assert {node.get_attributes()['stable'] for node in model.get_ops() if node.get_type_name() == 'TopK'} == {False}
    run = openvino.compile_model(model, 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})
    scores = torch.randperm(80_000, generator=torch.Generator().manual_seed(0))[None].float().expand(2, -1)
    order = torch.from_numpy(run([scores.numpy()])[0]).long()
    assert torch.equal(order, scores.argsort(dim=1, descending=True))


def test_rows_follow_their_order() -> None:
    rows = SCORES[..., None] * torch.tensor([1.0, -1.0])
    expected = torch.stack([row[order] for row, order in zip(rows, EXPECTED, strict=True)])
    assert torch.equal(rows_at(rows, EXPECTED), expected)
