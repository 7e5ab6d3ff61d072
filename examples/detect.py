"""Find objects in a picture with a detector's file: read, resize and pad the picture, run the file, scale the boxes back.

It needs the folder of an exported detector (`final` outputs), numpy, OpenCV, and the runtime of the format: torch, onnxruntime or openvino.
Nothing of mmexport or OpenMMLab. What is done to the picture is read from ``manifest.json``, which has it from the config's test pipeline.

    python examples/detect.py work_dirs/rtmdet/onnx picture.jpg --out found.jpg
"""
from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

Arrays = dict[str, np.ndarray]
INTERPOLATIONS = dict(nearest=cv2.INTER_NEAREST, bilinear=cv2.INTER_LINEAR, bicubic=cv2.INTER_CUBIC, area=cv2.INTER_AREA,
                      lanczos=cv2.INTER_LANCZOS4)


@dataclass
class Prepared:
    """Hold the tensor (1, C, H, W) for the file and what is needed for the way back.

    Attributes:
        shape: height and width that boxes are clipped to; rows and columns beyond them are the data_preprocessor's padding.
        factors: by which width and height of the picture were multiplied.
    """

    image: np.ndarray
    shape: tuple[int, int]
    factors: tuple[float, float]


def resized(picture: np.ndarray, rule: dict[str, Any] | None) -> np.ndarray:
    """Do what mmcv's ``Resize`` does. Source: mmcv/image/geometric.py (``rescale_size``)."""
    if rule is None:
        return picture
    if str(rule['type']).rpartition('.')[2] != 'Resize':
        raise SystemExit(f'the test pipeline resizes by {rule["type"]}; this example knows Resize')
    height, width = picture.shape[:2]
    if rule.get('scale') is None:
        factors = np.broadcast_to(rule['scale_factor'], 2)
        scale = (int(width * factors[0] + 0.5), int(height * factors[1] + 0.5))
    else:
        scale = (rule['scale'],) * 2 if isinstance(rule['scale'], int) else tuple(rule['scale'])
    if rule.get('keep_ratio'):
        factor = min(max(scale) / max(height, width), min(scale) / min(height, width))
        scale = (int(width * factor + 0.5), int(height * factor + 0.5))
    return cv2.resize(picture, scale, interpolation=INTERPOLATIONS[rule.get('interpolation', 'bilinear')])


def padded(image: np.ndarray, height: int, width: int, value: Any) -> np.ndarray:
    """Fill up (H, W, C) at the bottom and at the right."""
    whole = np.empty((max(height, image.shape[0]), max(width, image.shape[1]), image.shape[2]), image.dtype)
    whole[...] = value
    whole[:image.shape[0], :image.shape[1]] = image
    return whole


def padded_by_pipeline(picture: np.ndarray, rule: dict[str, Any] | None) -> np.ndarray:
    """Do what mmcv's ``Pad`` does. Source: mmcv/transforms/processing.py."""
    if rule is None:
        return picture
    height, width = picture.shape[:2]
    if rule.get('pad_to_square'):
        height = width = max(height, width)
    if divisor := rule.get('size_divisor'):
        height, width = (math.ceil(side / divisor) * divisor for side in (height, width))
    elif rule.get('size'):
        width, height = rule['size']
    return padded(picture, height, width, rule['value'])


def prepared(picture: np.ndarray, manifest: dict[str, Any]) -> Prepared:
    """Make the input of a picture (H, W, 3), uint8, BGR as OpenCV reads it."""
    rule = manifest['preprocessing']
    if 'mean' not in rule:
        raise SystemExit(f'this example does not know what the file expects: {rule["expects"]}')
    small = resized(picture, rule['resize'])
    factors = (small.shape[1] / picture.shape[1], small.shape[0] / picture.shape[0])
    image = padded_by_pipeline(small, rule['pad']).astype(np.float32)
    shape, last = image.shape[:2], rule['padding']
    if not rule['inside_graph']:
        image = image[..., ::-1] if rule['swaps_bgr_rgb'] else image
        image = (image - np.float32(rule['mean'])) / np.float32(rule['std'])
    height, width = last['size'] or (math.ceil(side / last['divisor']) * last['divisor'] for side in shape)
    image = padded(image, height, width, last['value'])
    return Prepared(np.ascontiguousarray(image.transpose(2, 0, 1)[None]), shape, factors)


def refuse_other_sizes(image: np.ndarray, spec: dict[str, Any]) -> None:
    """Stop at a size that the export did not check: a runtime may take it and be wrong."""
    for axis, side in zip(('height', 'width'), image.shape[2:], strict=True):
        low, high = spec['ranges'].get(axis, (spec['traced'][spec['axes'].index(axis)],) * 2)
        if not low <= side <= high or side % spec['multiple_of']:
            raise SystemExit(f'the {axis} of the prepared picture is {side}; the file takes multiples of {spec["multiple_of"]} from {low} '
                             f'to {high}: export with pictures like this one (--image), or with --shape {image.shape[2]} '
                             f'{image.shape[3]}')


def loaded(folder: Path, manifest: dict[str, Any]) -> Callable[[Arrays], Arrays]:
    """Return what runs the file: inputs by name to outputs by name."""
    file, names = folder / manifest['file'], [output['name'] for output in manifest['outputs']]
    if file.suffix == '.onnx':
        import onnxruntime
        session = onnxruntime.InferenceSession(str(file), providers=['CPUExecutionProvider'])
        return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))
    if file.suffix == '.xml':
        import openvino
        compiled = openvino.Core().compile_model(str(file), 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})
        return lambda inputs: dict(zip(names, compiled(inputs).to_tuple(), strict=True))
    import torch
    module = torch.jit.load(str(file)) if file.suffix == '.pt' else torch.export.load(str(file)).module()

    def run(inputs: Arrays) -> Arrays:
        with torch.no_grad():
            return dict(zip(names, (output.numpy() for output in module(*map(torch.from_numpy, inputs.values()))), strict=True))

    return run


def found(picture: np.ndarray, manifest: dict[str, Any], run: Callable[[Arrays], Arrays]) -> Arrays:
    """Return `boxes` (K, 4) in pixels of the picture, `scores`, `labels`, and maybe `masks` (K, H, W) bool."""
    given = prepared(picture, manifest)
    refuse_other_sizes(given.image, manifest['inputs'][0])
    inputs = {manifest['inputs'][0]['name']: given.image}
    if len(manifest['inputs']) > 1:
        inputs[manifest['inputs'][1]['name']] = np.array([given.shape], np.int64)
    outputs = run(inputs)
    count = int(outputs['num'][0])
    rows = {name: outputs[name][0, :count] for name in ('boxes', 'scores', 'labels')}
    rows['boxes'] = rows['boxes'] / np.float32([*given.factors, *given.factors])
    if 'masks' in outputs:
        masks, size = outputs['masks'][0, :count], picture.shape[:2]
        rows['masks'] = np.array([pasted(mask, box, size) if mask.dtype == np.float32 else enlarged(mask, given.factors, size)
                                  for mask, box in zip(masks, rows['boxes'], strict=True)], bool).reshape(count, *size)
    return rows


def pasted(logits: np.ndarray, box: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Return the mask (H, W) of logits in the cells of a box: their probabilities, bilinear, at the centres of the pixels."""
    probabilities = 1 / (1 + np.exp(-logits))
    weights = []
    for side, low, high, cells in zip(size, box[[1, 0]], box[[3, 2]], logits.shape, strict=True):
        places = (np.arange(side) + 0.5 - low) / max(high - low, 1e-6) * cells - 0.5
        weights.append(np.maximum(0, 1 - abs(places[:, None] - np.arange(cells))))
    return weights[0] @ probabilities @ weights[1].T >= 0.5


def enlarged(mask: np.ndarray, factors: tuple[float, float], size: tuple[int, ...]) -> np.ndarray:
    """Return a mask of the file's input at the size of the picture."""
    height, width = (math.ceil(side / factor) for side, factor in zip(mask.shape, factors[::-1], strict=True))
    whole = cv2.resize(mask.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR) >= 0.5
    return padded(whole[..., None], *size, False)[:size[0], :size[1], 0]


def drawn(picture: np.ndarray, rows: Arrays, classes: list[str]) -> np.ndarray:
    picture = picture.copy()
    for number, (box, label) in enumerate(zip(rows['boxes'].round().astype(int).tolist(), rows['labels'].tolist(), strict=True)):
        if 'masks' in rows:
            picture[rows['masks'][number]] //= 2
        cv2.rectangle(picture, box[:2], box[2:], (0, 0, 255), 1)
        cv2.putText(picture, classes[label], (box[0], box[1] + 12), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (0, 0, 255))
    return picture


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or '').partition('\n')[0])
    parser.add_argument('folder', type=Path, help='with manifest.json and the file')
    parser.add_argument('picture', type=Path)
    parser.add_argument('--threshold', type=float, default=0.3, help='of the score')
    parser.add_argument('--out', type=Path, help='write the picture with its boxes')
    options = parser.parse_args()
    manifest = json.loads((options.folder / 'manifest.json').read_text())
    if 'num' not in [output['name'] for output in manifest['outputs']]:
        raise SystemExit("this example reads a detector's final outputs, with mmexport's names")
    picture = cv2.imread(str(options.picture))
    if picture is None:
        raise SystemExit(f'{options.picture} is not a picture that OpenCV reads')
    rows = found(picture, manifest, loaded(options.folder, manifest))
    rows = {name: values[rows['scores'] >= options.threshold] for name, values in rows.items()}
    classes = manifest['classes'] or [str(label) for label in range(manifest['num_classes'])]
    for box, score, label in zip(rows['boxes'].tolist(), rows['scores'].tolist(), rows['labels'].tolist(), strict=True):
        print(f'{classes[label]}  {score:.3f}  {" ".join(f"{side:.1f}" for side in box)}')
    if options.out:
        cv2.imwrite(str(options.out), drawn(picture, rows, classes))


if __name__ == '__main__':
    main()
