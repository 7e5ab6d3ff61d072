"""Cut the raw outputs off an exported program."""
from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from ...compat.pytree import tree_structure

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def cut_program(program: ExportedProgram, count: int) -> ExportedProgram:
    """Return `program` with its first `count` outputs; the weights are shared."""
    shared = {id(mapping): mapping for mapping in (program.state_dict, program.constants)}
    result = copy.deepcopy(program, memo=shared)
    end = result.graph.output_node()
    end.args = (tuple(end.args[0][:count]),)  # type: ignore[index]
    result.graph_signature.output_specs[:] = result.graph_signature.output_specs[:count]
    top = result.module_call_graph[0].signature
    assert top is not None
    top.outputs[:] = top.outputs[:count]
    top.out_spec = tree_structure((0,) * count)
    result.graph.eliminate_dead_code()
    result.graph_module.recompile()
    return result
