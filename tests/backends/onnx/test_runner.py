"""Test what of an ONNX file that was asked for on CUDA may be computed on the CPU."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from mmexport.backends.onnx.runner import assignment, tensor_nodes, unexpected_cpu_operators


@dataclass
class Node:
    name: str
    op_type: str


@dataclass
class Part:
    ep_name: str
    nodes: list[Node]

    def get_nodes(self) -> Iterable[Node]:
        return self.nodes


def file_of(tmp_path: Path) -> Path:
    """Write a transposed picture, its size, and the size as a scale."""
    image = helper.make_tensor_value_info('image', TensorProto.FLOAT, ['n', 3, 'h', 'w'])
    turned = helper.make_tensor_value_info('turned', TensorProto.FLOAT, ['n', 'h', 'w', 3])
    size = helper.make_tensor_value_info('size', TensorProto.INT64, [4])
    scale = helper.make_tensor_value_info('scale', TensorProto.FLOAT, [4])
    nodes = [helper.make_node('Transpose', ['image'], ['turned'], name='turn', perm=[0, 2, 3, 1]),
             helper.make_node('Shape', ['turned'], ['size'], name='measure'),
             helper.make_node('Cast', ['size'], ['scale'], name='cast', to=TensorProto.FLOAT)]
    graph = helper.make_graph(nodes, 'graph', [image], [scale], value_info=[turned, size])
    place = tmp_path / 'model.onnx'
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)]), place)
    return place


def test_strays_lists_non_shape_operators(tmp_path: Path) -> None:
    file = file_of(tmp_path)
    assert unexpected_cpu_operators({('measure', 'Shape'), ('cast', 'Cast')}, file) == []
    assert unexpected_cpu_operators({('measure', 'Shape'), ('turn', 'Transpose')}, file) == ['Transpose']
    assert unexpected_cpu_operators({('anything', 'GridSample')}, file) == ['GridSample']
    # A transposition that ONNX Runtime has put in itself is known by its type alone.
    assert unexpected_cpu_operators({('added', 'Transpose')}, file) == []


def test_assignment_groups_nodes_by_provider() -> None:
    record = [Part('CPU', [Node('a', 'Shape')]), Part('CUDA', [Node('b', 'Conv')]), Part('CPU', [Node('c', 'Gather')])]
    assert assignment(record) == {'CPU': {('a', 'Shape'), ('c', 'Gather')}, 'CUDA': {('b', 'Conv')}}


def test_two_axes_make_a_picture(tmp_path: Path) -> None:
    """Scores have two axes, and a size as a number has one."""
    axes = dict(scores=['n', 4], scale=[4], image=['n', 3, 'h', 'w'])
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in axes.items()}
    nodes = [helper.make_node('ReduceMean', ['image'], ['scores'], name='mean'),
             helper.make_node('ReduceMax', ['scores'], ['scale'], name='most')]
    graph = helper.make_graph(nodes, 'graph', [values['image']], [values['scores'], values['scale']])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)]), tmp_path / 'model.onnx')
    assert tensor_nodes(tmp_path / 'model.onnx') == {'mean'}
