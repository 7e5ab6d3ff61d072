from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mmexport.ops.op import with_forms
from mmexport.ops.sigmoid import sigmoid

# The runtime's own operator is 0 at the lower end.
LOGITS = torch.linspace(-80, 14, 5000)


class Probability(nn.Module):
    def forward(self, logits: Tensor) -> Tensor:
        return sigmoid(logits)


def test_both_forms_are_torchs_to_its_rounding():
    assert torch.equal(sigmoid(LOGITS), LOGITS.sigmoid())
    with with_forms(sigmoid='exp'):
        torch.testing.assert_close(sigmoid(LOGITS), LOGITS.double().sigmoid().float(), rtol=3e-7, atol=0)
        assert sigmoid(torch.tensor([float('-inf'), -200.0, 200.0])).tolist() == [0, 0, 1]


@pytest.mark.parametrize('dynamo', [True, False])
def test_the_runtime_keeps_the_order(tmp_path: Path, dynamo: bool):
    onnxruntime = pytest.importorskip('onnxruntime')
    with with_forms(sigmoid='exp'):
        torch.onnx.export(Probability(), (LOGITS,), tmp_path / 'model.onnx', dynamo=dynamo, input_names=['logits'], verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / 'model.onnx', providers=['CPUExecutionProvider'])
    answer = torch.from_numpy(session.run(None, {'logits': LOGITS.numpy()})[0])
    torch.testing.assert_close(answer, LOGITS.double().sigmoid().float(), rtol=5e-7, atol=0)
    assert (answer.diff() >= 0).all() and (answer[LOGITS < 0].diff() > 0).all()
