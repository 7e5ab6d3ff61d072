"""Lower to ``torch.export``: a ``.pt2`` file that any Python with the same torch loads, without the model's source."""
from __future__ import annotations

import copy
import json
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...adapters.specs import IMAGE, InputSpec
from ...registry import BACKENDS
from ..base import INSIDE
from ..exported.cutting import cut_program
from ..exported.from_program import ProgramBackend
from ..exported.program import silenced
from ..exported.valid_sizes import input_nodes

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@BACKENDS.register_module()
class TorchExport(ProgramBackend):
    """Lower with ``torch.export``, batch, height and width open.

    The weights follow the device on which the program is loaded (the library's own ``move_to_device_pass``, see the runner).
    """

    name = 'torch_export'
    file = 'model.pt2'
    cuts = True

    def convert(self, program: ExportedProgram, folder: Path, names: Sequence[str],
                inputs: Sequence[InputSpec]) -> ExportedProgram:
        return program

    def cut(self, program: ExportedProgram, count: int) -> ExportedProgram:
        return cut_program(program, count)

    def write(self, program: ExportedProgram, folder: Path, names: Sequence[str], manifest: dict[str, Any]) -> dict[str, Any]:
        manifest[self.name].update(nodes=len(program.graph.nodes))
        program = with_limits(program, manifest.get('inputs', ()))
        with silenced():
            torch.export.save(program, folder / self.file, extra_files={INSIDE: json.dumps(manifest)})
        return manifest


def with_limits(program: ExportedProgram, inputs: Sequence[Mapping[str, Any]]) -> ExportedProgram:
    """Return `program` with a check of each open axis: what was tried is less than what it was made for, which includes its example."""
    limited = copy.deepcopy(program, memo={id(held): held for held in (program.state_dict, program.constants)})
    first = next(node for node in limited.graph.nodes if node.op != 'placeholder')
    limits = [(node, list(spec.get('axes', IMAGE.axes)).index(name), name, *limits)
              for node, spec in zip(input_nodes(limited), inputs, strict=False) for name, limits in spec.get('ranges', {}).items()]
    with limited.graph.inserting_before(first):
        for node, axis, name, low, high in limits:
            size = limited.graph.call_function(torch.ops.aten.sym_size.int, (node, axis))
            size.meta['val'] = node.meta['val'].shape[axis]
            for compare, limit, words in ((operator.ge, low, 'at least'), (operator.le, high, 'at most')):
                held = limited.graph.call_function(compare, (size, int(limit)))
                held.meta['val'] = compare(size.meta['val'], int(limit))
                message = f'mmexport: this file was checked with a {name} of {words} {limit} only'
                limited.graph.call_function(torch.ops.aten._assert_scalar.default, (held, message)).meta['val'] = None
    limited.graph_module.recompile()
    return limited
