"""Capture one graph with decisions and raw outputs: check both, deliver the decisions only."""
from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils._pytree import tree_structure

if TYPE_CHECKING:
    from torch.export import ExportedProgram

SUFFIX = '.raw'


@contextmanager
def with_raw(adapter: Any) -> Iterator[list[dict[str, Any]]]:
    """Let `adapter` return its raw outputs too, if they are to be checked; yield their specs."""
    if not getattr(adapter, 'check_raw', False):
        yield []
        return
    with adapter.with_raw() as specs:
        yield [spec.as_dict() for spec in specs[len(adapter.specs):]]


def raw_folder(folder: Path) -> Path:
    """Return the folder of the graph with raw outputs, which is checked and never delivered."""
    return folder.with_name(f'{folder.name}{SUFFIX}')


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


def raw_manifest(manifest: dict[str, Any], raw: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the manifest of the graph with raw outputs."""
    return {**manifest, 'raw': list(raw), 'outputs': [*manifest['outputs'], *raw]}
