"""Test programs decomposed node by node, against torch's own decomposition of the whole."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, default_decompositions, export

from mmexport.adapters import build_adapter
from mmexport.backends.exported.internals.decomposing import decomposed_by_node
from mmexport.backends.exported.internals.inplace import RetraceRequiredError, Writes
from mmexport.backends.exported.program import exported_program, silenced
from mmexport.backends.onnx.backend import ONNX
from mmexport.backends.onnx.internals.converting import converted
from mmexport.patching import patched
from tests.tiny import SHAPE, seeded


class Plain(nn.Module):

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer('seen', torch.zeros(4))

    def forward(self, image: Tensor) -> Any:
        return self.function(self, image)


def program_of(function: Callable[..., Any]) -> ExportedProgram:
    with torch.no_grad(), silenced():
        return export(Plain(function).eval(), (torch.randn(2, 3, 17, 19),),
                      dynamic_shapes=({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},), strict=False)


def never(table: Any = None) -> ExportedProgram:
    raise AssertionError('traced as a whole')


def identity_is_written_to(self: Any, image: Tensor) -> Tensor:
    """Write to an identity: what was `features` is relu of it, for everybody who looks later."""
    features = self.conv(image)
    return features.relu_() + features


def written_twice(self: Any, image: Tensor) -> Tensor:
    features = self.norm(self.conv(image))
    shortcut = features * 2
    features += shortcut
    F.relu_(features)
    return features.mul_(3) - shortcut


def index_of_another_dtype(self: Any, image: Tensor) -> Tensor:
    features = self.conv(image).flatten(2)
    return features.scatter_(2, features.argmax(2, keepdim=True), -1.0)


def masked(self: Any, image: Tensor) -> Tensor:
    features = self.conv(image)
    return torch.zeros_like(features).masked_fill_(features > 0, -10.0).softmax(1)


def several_answers(self: Any, image: Tensor) -> tuple[Tensor, ...]:
    first, second = self.norm(self.conv(image)).chunk(2, dim=1)
    return F.dropout2d(first, training=False), F.interpolate(second, scale_factor=2.0, mode='bilinear'), first.reshape(image.shape[0], -1)


def view_is_used_after(self: Any, image: Tensor) -> Tensor:
    features = self.conv(image)
    flat = features.flatten(2)
    features.relu_()
    return flat * 2


def part_is_written_to(self: Any, image: Tensor) -> Tensor:
    features = self.conv(image)
    features[:, :2].relu_()
    return features * 2


def input_is_written_to(self: Any, image: Tensor) -> Tensor:
    return self.conv(image.relu_())


def narrow_keeps_its_dtype(self: Any, image: Tensor) -> Tensor:
    half = self.conv(image).half()
    half += torch.ones_like(half, dtype=torch.float32) / 3
    return half


def length_is_left_open(self: Any, image: Tensor) -> Tensor:
    """Do what mmseg's ACM does: to find the length, torch's decomposition asks how many elements there are."""
    return self.conv(image).permute(0, 2, 3, 1).reshape(image.shape[0], -1, 2)


SAFE = [length_is_left_open, identity_is_written_to, written_twice, index_of_another_dtype, masked, several_answers]
UNSAFE = [view_is_used_after, part_is_written_to, input_is_written_to, narrow_keeps_its_dtype]


@pytest.mark.parametrize('function', SAFE)
def test_the_same_as_eager_without_tracing_the_whole(function: Callable[..., Any]) -> None:
    program = program_of(function)
    module, image = program.module(), torch.randn(3, 3, 23, 11)
    program.run_decompositions = never  # type: ignore[method-assign, assignment]
    table = default_decompositions()
    done = decomposed_by_node(program).run_decompositions(table)
    called = {node.target for node in done.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    assert not {target for target in called if target in table} - {torch.ops.aten.sym_size.int}
    assert not {target for target in called if target._schema.is_mutable}
    assert torch.ops.aten.sym_numel.default not in called
    with torch.no_grad():
        actual, expected = done.module()(image), module(image.clone())
    for one, other in zip(*([each] if isinstance(each, Tensor) else each for each in (actual, expected)), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize('function', UNSAFE)
def test_what_cannot_be_renamed_is_traced_as_a_whole(function: Callable[..., Any]) -> None:
    program = program_of(function)
    with pytest.raises(RetraceRequiredError):
        Writes(program.graph.nodes)
    image = torch.randn(3, 3, 23, 11)
    with torch.no_grad():
        expected = program.module()(image.clone())
        actual = decomposed_by_node(program).run_decompositions(default_decompositions()).module()(image)
    torch.testing.assert_close(actual, expected)


def test_the_program_that_is_given_stays_what_it_was() -> None:
    program = program_of(written_twice)
    before = str(program.graph)
    decomposed_by_node(program).run_decompositions(default_decompositions())
    assert str(program.graph) == before
    assert 'run_decompositions' not in vars(program)


@pytest.mark.parametrize('name', ['pspnet', 'segformer_b0'])
def test_onnx_is_the_graph_that_torch_makes_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same operators as often, and the path that is meant to be taken is the one that was."""
    adapter, backend = build_adapter(seeded(name), outputs='raw'), ONNX()
    with patched('auto'), silenced(), torch.no_grad():
        program = exported_program(adapter, torch.zeros(SHAPE), ('batch', 'height', 'width'), **backend.forms)
        names = [spec.name for spec in adapter.specs]
        with monkeypatch.context() as patch:
            patch.setattr(ExportedProgram, 'run_decompositions', never)
            actual = converted(program, backend.opset, names, ['image'])
        whole = torch.onnx.export(program, dynamo=True, opset_version=backend.opset, input_names=['image'], output_names=names)
    assert whole is not None
    assert Counter(node.op_type for node in actual.graph.node) == Counter(node.op_type for node in whole.model_proto.graph.node)
