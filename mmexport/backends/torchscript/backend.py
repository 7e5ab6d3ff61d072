"""Lower to TorchScript: trace, freeze, frozen optimizations, one file for every device."""
from __future__ import annotations

import io
import json
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...adapters import Adapter
from ...artifact import Artifact
from ...errors import LoweringError, MMExportError, first_line, last_line
from ...ops.op import forms_for, with_forms
from ...registry import BACKENDS
from ..base import INSIDE, TRACED, Backend, Run, name_of
from ..examples import inputs_for
from ..raw_outputs import raw_folder, raw_manifest, with_raw
from ..tracer_warnings import tracer_warnings
from .graph import count_kinds, device_literals, dtype_literals, follow_input_device

FILE = 'model.pt'


@BACKENDS.register_module()
class TorchScript(Backend):
    """Lower with ``torch.jit.trace``.

    Freezing puts the weights into the graph, which is what lets the frozen optimizations fold conv+bn and concatenate linear layers.
    ``torch.jit.freeze`` can run those itself (``optimize_numerics``); they are run here as a step of their own, so that what they
    changed can be counted and the manifest can say it. ``optimize_for_inference`` is never used: it writes MKL-DNN layouts of this
    machine into the file, which other machines and CUDA cannot run.

    Args:
        optimize_numerics: let the optimizations change rounding (folding conv+bn does). Parity is measured with it on.
    """

    name = 'torchscript'
    repro = f'torch.jit.save(torch.jit.freeze({TRACED}), "part.pt")\n'
    repro_intermediate = TRACED
    traces = True

    def __init__(self, optimize_numerics: bool = True) -> None:
        self.optimize_numerics = optimize_numerics

    def lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any]) -> Artifact:
        with with_raw(adapter) as raw:
            inputs = inputs_for(adapter, example)
            traced, messages = self._trace(adapter, inputs)
        if raw:
            self._write(traced, raw_folder(folder), raw_manifest(manifest, raw))
            traced, _ = self._trace(First(traced, len(adapter.specs)), inputs)
        return self._write(traced, folder, manifest, tracer_warnings=messages)

    def _write(self, traced: Any, folder: Path, manifest: dict[str, Any], **facts: Any) -> Artifact:
        frozen, steps = self._freeze(traced)
        steps.update(facts)
        # The first of them is the module itself.
        steps['device_literals_fixed'] = follow_input_device(frozen.graph, list(frozen.graph.inputs())[1])
        remaining = device_literals(frozen.graph)
        if remaining:
            raise LoweringError(f'the graph still names devices: {", ".join(sorted(set(remaining)))}; mmexport audit shows the lines')
        steps.update(device_literals=0, dtype_literals=dtype_literals(frozen.graph))
        steps['summary'] = self.summary(steps)
        manifest = self.signed(manifest, steps)
        folder.mkdir(parents=True, exist_ok=True)
        self._save(frozen, str(folder / FILE), {INSIDE: json.dumps(manifest)})
        self._check_saved(folder / FILE)
        return self.finished(folder / FILE, manifest)

    def summary(self, facts: dict[str, Any]) -> list[str]:
        fused = facts['fused']
        return [f"conv+bn folded {fused['conv_bn_folded']}, linear layers joined {fused['linear_layers_joined']}, "
                f"nodes {fused['nodes_before']} -> {fused['nodes_after']}"]

    def attempt(self, part: nn.Module, inputs: tuple[Tensor, ...], moving: Sequence[Sequence[int]]) -> Run:
        """Trace the part; a trace fixes sizes silently, so the comparison must find out about `moving`."""
        frozen, _ = self._freeze(self._trace(part, inputs)[0])
        self._save(frozen, io.BytesIO(), {})
        return frozen  # type: ignore[no-any-return]

    def intermediate(self, adapter: Adapter, example: Tensor, dynamic: Sequence[str]) -> tuple[str, Run]:
        return 'traced', self._trace(adapter, inputs_for(adapter, example))[0]

    @staticmethod
    def _save(frozen: Any, place: Any, inside: dict[str, str]) -> None:
        try:
            torch.jit.save(frozen, place, _extra_files=inside)
        except RuntimeError as exc:
            raise LoweringError(f'the graph cannot be saved: {first_line(exc)}') from exc

    @classmethod
    def _trace(cls, module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, list[dict[str, Any]]]:
        """Return the traced module, and warnings about the user's code."""
        try:
            with torch.no_grad(), tracer_warnings() as messages, with_forms(**forms_for(cls.name)):
                return torch.jit.trace(module, inputs, check_trace=False), messages
        except MMExportError:
            raise
        except Exception as exc:
            raise LoweringError(f'torch.jit.trace of {name_of(module)} failed: {last_line(exc)}') from exc

    def _freeze(self, traced: Any) -> tuple[Any, dict[str, Any]]:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            frozen = torch.jit.freeze(traced.eval(), optimize_numerics=False)
            before = count_kinds(frozen.graph)
            torch.jit.run_frozen_optimizations(frozen, optimize_numerics=self.optimize_numerics)
        after = count_kinds(frozen.graph)
        return frozen, dict(freeze=True, run_frozen_optimizations=True, optimize_numerics=self.optimize_numerics,
                            optimize_for_inference=False, torch=torch.__version__, fused=_fused(before, after))

    @staticmethod
    def _check_saved(path: Path) -> None:
        """Read the file back and raise if it has a device literal."""
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            remaining = device_literals(torch.jit.load(str(path), map_location='cpu').inlined_graph)
        if remaining:
            raise LoweringError(f'{path.name} names devices after saving: {", ".join(sorted(set(remaining)))}; mmexport audit shows the '
                                'lines')


class First(nn.Module):
    """Return the first `count` outputs of a traced module; freezing removes what only the others need."""

    def __init__(self, traced: Any, count: int) -> None:
        super().__init__()
        self.traced, self.count = traced, count

    def forward(self, first: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.traced(first, *others)[:self.count])


def _fused(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    """Count what the frozen optimizations did, from node counts before and after."""
    convolutions = ('aten::_convolution', 'aten::conv2d')
    return dict(conv_bn_folded=before['aten::batch_norm'] - after['aten::batch_norm'], batch_norm_left=after['aten::batch_norm'],
                linear_layers_joined=before['aten::linear'] - after['aten::linear'],
                convolutions=sum(after[kind] for kind in convolutions),
                nodes_before=sum(before.values()), nodes_after=sum(after.values()))
