"""Count the pictures of which a file's suppression keeps other boxes than stable greedy suppression, written as a loop.

The boxes are random, clustered, chained, degenerate or huge; some are equal. Scores are in no order, and in every second picture many of
them are equal. Files rank the boxes and suppress them, as those of detectors do: few boxes in most pictures, and more than a block of the
suppression has in some. With compiled mmcv its kernel is compared with the loop, too; it leaves the order of equal scores open.
    python benchmarks/nms_cases.py --out benchmarks/results/nms_cases.json
"""
from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import ROOT, quiet, write
from torch import Tensor, nn

sys.path.insert(0, str(ROOT))

KINDS = ('random', 'clustered', 'chained', 'degenerate', 'huge')
THRESHOLD, TOGETHER = 0.45, 100
# Boxes in a picture, and the share of the pictures.
SIZES = {24: 1.0, 400: 0.03}
# An overlap that rounding may bring over the threshold. OpenVINO also suppresses at it.
NEAR = 1e-5

Run = Callable[[Tensor, Tensor], Tensor]


class Suppress(nn.Module):
    """Return the places of boxes (N, M, 4) that stay, ranked by their scores (N, M), and -1 after the last (N, M)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, boxes: Tensor, scores: Tensor) -> Tensor:
        from mmexport.ops.nms import first_kept
        from mmexport.ops.ranking import ranked, rows_at
        order = ranked(scores)
        index, count = first_kept(rows_at(boxes, order), torch.ones_like(scores, dtype=torch.bool), THRESHOLD, self.size)
        return torch.where(torch.arange(self.size, device=boxes.device) < count[:, None], order.gather(1, index), -1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--pictures', type=int, default=10_000)
    parser.add_argument('--out', type=Path, required=True)
    args = parser.parse_args()
    quiet()
    from mmexport.compat import provide_mmcv_ext
    ext = provide_mmcv_ext()
    rows, counted = [], []
    for size, share in SIZES.items():
        boxes, scores = pictures(round(args.pictures * share), size)
        tied = torch.tensor([len(row.unique()) < size for row in scores])
        answers = [greedy(*picture) for picture in zip(boxes, scores, strict=True)]
        expected, near = torch.stack([answer for answer, _ in answers]), torch.tensor([close for _, close in answers])
        counted.append(dict(boxes=size, pictures=len(boxes), tied=int(tied.sum()), near=int(near.sum()),
                            suppressed=int((expected < 0).sum())))
        with tempfile.TemporaryDirectory() as folder:
            for name, run in files(Path(folder), size).items():
                actual = torch.cat([run(*part) for part in zip(boxes.split(TOGETHER), scores.split(TOGETHER), strict=True)])
                rows.append(row_of(name, size, (actual != expected).any(dim=1), tied, near))
        if ext == 'compiled':
            rows.append(row_of("mmcv's kernel", size, (of_mmcv(boxes, scores) != expected).any(dim=1), tied, near))
    for row in rows:
        print(row, flush=True)
    write(args.out, rows, cases=counted, threshold=THRESHOLD, mmcv_ops=ext)
    # OpenVINO leaves ties open, and suppresses at the threshold.
    return int(any(row['differ_clearly' if row['runs'] == 'openvino' else 'differ'] for row in rows if row['runs'] != "mmcv's kernel"))


def row_of(name: str, size: int, differs: Tensor, tied: Tensor, near: Tensor) -> dict[str, Any]:
    """Return how many pictures differ: in all, of those with equal scores, and of those with neither these nor an overlap at the limit."""
    return dict(runs=name, boxes=size, differ=int(differs.sum()), differ_of_tied=int((differs & tied).sum()),
                differ_clearly=int((differs & ~tied & ~near).sum()))


def pictures(count: int, size: int) -> tuple[Tensor, Tensor]:
    """Return boxes (count, size, 4) and scores (count, size)."""
    from tests.kernel_cases import boxes
    where = torch.stack([boxes(KINDS[number % len(KINDS)], size, number) for number in range(count)])
    where[::3, size // 2] = where[::3, size // 3]
    draw = np.random.RandomState(0)
    scores = torch.from_numpy(draw.rand(count, size).astype(np.float32))
    few = torch.from_numpy((draw.randint(1, 9, (count, size)) / 8).astype(np.float32))
    return where, torch.where((torch.arange(count) % 2 == 1)[:, None], few, scores)


def greedy(boxes: Tensor, scores: Tensor) -> tuple[Tensor, bool]:
    """Return the places that stay, the best first and of equal scores the first, and whether an overlap is nearly at the threshold."""
    rows, kept, near = boxes.double().tolist(), [], False
    for place in sorted(range(len(rows)), key=lambda each: (-float(scores[each]), each)):
        overlaps = [overlap_of(rows[place], rows[other]) for other in kept]
        near = near or any(abs(overlap - THRESHOLD) < NEAR for overlap in overlaps)
        # Compared in float32, as every kernel does.
        if not any(float(np.float32(overlap)) > float(np.float32(THRESHOLD)) for overlap in overlaps):
            kept.append(place)
    return torch.tensor(kept + [-1] * (len(rows) - len(kept))), near


def overlap_of(one: list[float], other: list[float]) -> float:
    width, height = (max(0.0, min(one[axis + 2], other[axis + 2]) - max(one[axis], other[axis])) for axis in (0, 1))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    union = sum(areas) - width * height
    return width * height / union if union else 0.0


def of_mmcv(boxes: Tensor, scores: Tensor) -> Tensor:
    """Return what mmcv's compiled kernel keeps."""
    from mmcv.ops import nms
    kept = [nms(rows, values, THRESHOLD)[1] for rows, values in zip(boxes, scores, strict=True)]
    return torch.stack([torch.cat([places, places.new_full((scores.shape[1] - len(places),), -1)]) for places in kept])


def files(folder: Path, size: int) -> dict[str, Run]:
    """Return what runs in each runtime."""
    import onnxruntime
    import openvino

    from mmexport.ops.op import with_forms
    example = pictures(3, size)
    file = io.BytesIO()
    torch.jit.save(torch.jit.freeze(torch.jit.trace(Suppress(size).eval(), example, check_trace=False)), file)
    file.seek(0)
    axes = {0: torch.export.Dim('batch', max=1 << 16)}

    def program() -> torch.export.ExportedProgram:
        return torch.export.export(Suppress(size).eval(), example, dynamic_shapes=(axes, axes), strict=False).run_decompositions()

    with with_forms(nms='while_loop'):
        exported = program()
    with with_forms(nms='while_loop', ranking='plain'):
        plain = program()
    package = torch._inductor.aoti_compile_and_package(exported, package_path=str(folder / 'nms.pt2'))
    torch.onnx.export(plain, f=str(folder / 'nms.onnx'), dynamo=True, opset_version=18, verbose=False)
    session = onnxruntime.InferenceSession(str(folder / 'nms.onnx'), providers=['CPUExecutionProvider'])
    names = [each.name for each in session.get_inputs()]
    model = openvino.Core().compile_model(openvino.convert_model(folder / 'nms.onnx'), 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})
    return {
        'torchscript': torch.jit.load(file), 'torch_export': exported.module(), 'aotinductor': torch._inductor.aoti_load_package(package),
        'onnx': lambda *inputs: torch.from_numpy(session.run(None, {
            name: value.numpy() for name, value in zip(names, inputs, strict=True)})[0]),
        'openvino': lambda *inputs: torch.from_numpy(model([value.numpy() for value in inputs])[0]).long()}


if __name__ == '__main__':
    sys.exit(main())
