"""Cut the raw outputs off an exported program."""
from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from torch.utils._pytree import tree_structure

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def cut_program(program: ExportedProgram, count: int) -> ExportedProgram:
    """Return `program` with its first `count` outputs; the weights are shared."""
    shared = {id(held): held for held in (program.state_dict, program.constants)}
    done = copy.deepcopy(program, memo=shared)
    end = done.graph.output_node()
    end.args = (tuple(end.args[0][:count]),)  # type: ignore[index]
    done.graph_signature.output_specs[:] = done.graph_signature.output_specs[:count]
    top = done.module_call_graph[0].signature
    assert top is not None
    top.outputs[:] = top.outputs[:count]
    top.out_spec = tree_structure((0,) * count)
    done.graph.eliminate_dead_code()
    done.graph_module.recompile()
    return done
