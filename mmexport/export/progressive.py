"""Export a new model part by part, and keep the largest part that passes. The parts are the backbone, backbone and neck, and all of it."""
from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from ..adapters.parts import Backbone, BackboneNeck
from ..report.facts import Report
from .exporter import Exporter

if TYPE_CHECKING:
    from mmengine.config import Config

ALL = 'all'
# A part lies apart from the whole model of an earlier run.
FOLDER = 'parts'


@dataclass
class PartResults:
    """Hold by format the largest part that passed and the one that did not."""

    kept: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    unchecked: bool = False

    @property
    def passed(self) -> bool:
        return not self.stopped

    def lines(self) -> list[str]:
        return [f'{name}: {self.kept.get(name, "no part")} passes, {part} does not' for name, part in self.stopped.items()] + [
            f"{name}: all of it {'is made, and was not verified' if self.unchecked else 'passes'}"
            for name in self.kept if name not in self.stopped]


Step = tuple[str, Report]


def steps(results: PartResults, cfg: Config, checkpoint: str | None, work_dir: str | Path, **common: Any) -> Iterator[Step]:
    """Export part after part into one `work_dir`. Each part has the formats that the part before passed in.

    A part goes into ``parts/``, its manifest says ``part``, and one that passes replaces the smaller one there; one that fails replaces
    nothing. The largest part that was right is there at the end. The last one is the whole
    model, which is published as usual; nothing else replaces a whole model of an earlier run.

    Args:
        results: gets the result of each part.
        common: for `Exporter`.
    """
    common = dict(common)
    for part, task in parts(cfg, common):
        step_cfg = cfg if task is None else _for_part(cfg, task)
        exporter = Exporter(step_cfg, checkpoint, Path(work_dir) if task is None else Path(work_dir) / FOLDER, **common)
        exporter.backends = [backend for backend in exporter.backends if backend.name not in results.stopped]
        if not exporter.backends:
            return
        report, = exporter.run()
        verdicts = {check.backend: report.passed_in(check.backend) for check in report.checks}
        for backend in exporter.backends:
            verdict = verdicts.get(backend.name, False)
            results.unchecked |= verdict is None
            if verdict is False:
                results.stopped[backend.name] = part
            else:
                results.kept[backend.name] = part
        common.update(model=exporter.model, fit=exporter.fit)
        yield part, report


def parts(cfg: Config, common: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield word and ``export.task`` of each part of the model."""
    yield Backbone.part, 'Backbone'
    model = common.get('model')
    if isinstance(model, nn.Module) and BackboneNeck.matches(model):
        yield BackboneNeck.part, 'BackboneNeck'
    yield ALL, None


def _for_part(cfg: Config, task: str) -> Config:
    part_cfg = copy.deepcopy(cfg)
    part_cfg.merge_from_dict({'export.task': task, 'export.outputs': 'raw', 'export.inputs.image': None})
    return part_cfg
