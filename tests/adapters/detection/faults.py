"""Make faults in the lowering of detectors: eager keeps its own results, and a file gets those of a wrong function."""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from mmexport.adapters.detection import detection
from mmexport.adapters.detection.boxes import dense
from mmexport.adapters.detection.boxes.candidates import Candidates
from mmexport.adapters.detection.stages import masks, regions
from mmexport.ops.roi_align import forms
from mmexport.report.facts import Report
from tests.detectors import exported, shape_of, tiny_detector

Rows = tuple[Tensor, Tensor, Tensor, Tensor]
kept, regions_kept, roi_align, masks_of, clipped = detection.kept, regions.kept, forms.roi_align, masks.masks_of, dense.clipped


class Fault(NamedTuple):
    """Hold the detector, the module and the name of the function that is replaced, by what, and whether pictures are padded."""

    detector: str
    module: str
    function: str
    wrong: Callable[..., Any]
    padded: bool = False


def with_setting(of: Callable[[Candidates, Any], Rows] = kept, **changes: Any) -> Callable[[Candidates, Any], Rows]:
    def faulty(candidates: Candidates, cfg: Any) -> Rows:
        cfg = copy.deepcopy(cfg)
        cfg.update(changes)
        return of(candidates, cfg)
    return faulty


def after(change: Callable[[Tensor, Tensor, Tensor, Tensor], Rows]) -> Callable[[Candidates, Any], Rows]:
    return lambda candidates, cfg: change(*kept(candidates, cfg))


def before(change: Callable[[Candidates], Candidates]) -> Callable[[Candidates, Any], Rows]:
    return lambda candidates, cfg: kept(change(candidates), cfg)


def without_the_first(boxes: Tensor, scores: Tensor, labels: Tensor, num: Tensor) -> Rows:
    shifted = [torch.cat([rows[:, 1:], torch.zeros_like(rows[:, :1])], dim=1) for rows in (boxes, scores, labels)]
    return shifted[0], shifted[1], shifted[2], (num - 1).clamp(min=0)


def next_level(levels: Any, rois: Tensor, level: Tensor, settings: Any) -> Tensor:
    return roi_align(levels, rois, (level + 1).clamp(max=len(levels) - 1), settings)


def first_picture(levels: Any, rois: Tensor, level: Tensor, settings: Any) -> Tensor:
    return roi_align(levels, torch.cat([torch.zeros_like(rois[:, :1]), rois[:, 1:]], dim=1), level, settings)


def other_settings(**changes: Any) -> Callable[..., Tensor]:
    return lambda levels, rois, level, settings: roi_align(levels, rois, level, settings._replace(**changes))


def of_another_row(roi_head: Any, features: regions.Features, boxes: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
    return masks_of(roi_head, features, boxes, labels)[0].roll(1, dims=1), None


def of_another_picture(roi_head: Any, features: regions.Features, boxes: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
    return masks_of(roi_head, features, boxes, labels)[0].roll(1, dims=0), None


DENSE: dict[str, Callable[[Candidates, Any], Rows]] = {
    'threshold of suppression 0.5 for 0.6': with_setting(nms=dict(type='nms', iou_threshold=0.5)),
    'classes suppress one another': with_setting(nms=dict(type='nms', iou_threshold=0.6, class_agnostic=True)),
    'threshold of the score twice as high': before(lambda rows: rows._replace(valid=rows.valid & (rows.scores > 0.1))),
    'labels shifted by one': after(lambda boxes, scores, labels, num: (boxes, scores, (labels + 1) % 12, num)),
    'boxes 2 px off': after(lambda boxes, scores, labels, num: (boxes + 2 * (scores > 0)[..., None], scores, labels, num)),
    'the best box dropped': after(without_the_first),
    'a level left out': before(lambda rows: rows._replace(valid=rows.valid & (torch.arange(rows.valid.shape[1]) < 2000))),
    'the first picture for all': after(lambda boxes, scores, labels, num: (boxes[:1].expand_as(boxes), scores[:1].expand_as(scores),
                                                                           labels[:1].expand_as(labels), num[:1].expand_as(num))),
}
CUT: dict[str, Callable[..., Tensor]] = {
    'regions from the next level': next_level,
    'RoIAlign not aligned': other_settings(aligned=False),
    'RoIAlign with two samples': other_settings(sampling_ratio=2),
    'regions of the first picture': first_picture,
}
MASKS: dict[str, Callable[..., tuple[Tensor, Tensor | None]]] = {
    'masks of the next label': lambda roi_head, features, boxes, labels: masks_of(roi_head, features, boxes, (labels + 1) % 12),
    'masks of another row': of_another_row,
    'masks of another picture': of_another_picture,
    'masks of boxes 2 px off': lambda roi_head, features, boxes, labels: masks_of(roi_head, features, boxes + 2, labels),
}
PROPOSALS = 'threshold of the proposals 0.6 for 0.7'
FAULTS = {
    **{name: Fault('atss', detection.__name__, 'kept', wrong) for name, wrong in DENSE.items()},
    **{name: Fault('faster_rcnn', 'mmexport.patches.roi_align', 'roi_align', wrong) for name, wrong in CUT.items()},
    'padding ignored': Fault('atss', dense.__name__, 'clipped',
                             lambda boxes, sizes: clipped(boxes, sizes.amax(dim=0, keepdim=True).expand_as(sizes)), padded=True),
    PROPOSALS: Fault('faster_rcnn', regions.__name__, 'kept', with_setting(regions_kept, nms=dict(type='nms', iou_threshold=0.6))),
    **{name: Fault('mask_rcnn', masks.__name__, 'masks_of', wrong) for name, wrong in MASKS.items()},
}


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Replace the function wherever a model is lowered inside the block, and nowhere else."""
    module = import_module(fault.module)
    right = getattr(module, fault.function)

    def chosen(*args: Any) -> Any:
        return (fault.wrong if torch.jit.is_tracing() or torch.compiler.is_compiling() else right)(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, fault.function, chosen)
        yield


def exported_with(name: str, backend: str, folder: Path) -> Report:
    """Export a detector with a planted fault; what eager answers is computed once for all faults of a detector."""
    fault = FAULTS[name]
    quick: dict[str, Any] = {} if fault.detector == 'atss' else dict(verify=dict(shapes=[(161, 97)], noises=1, batch=2))
    if fault.padded:
        quick['inputs'] = dict(shape=shape_of(fault.detector), img_shape=True)
    with planted(fault):
        return exported(fault.detector, tiny_detector(fault.detector, backends=[backend], **quick), folder)
