"""Draw small scenes with their labels, for models that are trained in minutes: the same scene for the same seed."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

SIDE = 96
Scene = tuple[Any, Any]


def nuclei(seed: int, height: int = SIDE, width: int = SIDE) -> Scene:
    """Draw dark discs of radius 2 to 4 on tissue, under 2% of the pixels, among blurred spots that are no nuclei."""
    generator = np.random.default_rng(seed)
    picture = _ground(generator, height, width, (205, 175, 215), 14)
    labels = np.zeros((height, width), np.uint8)
    area = height * width / SIDE ** 2
    for _ in range(int(6 * area)):
        centre = _place(generator, height, width)
        spot = np.zeros((height, width), np.float32)
        cv2.circle(spot, centre, int(generator.integers(3, 7)), 1.0, -1)
        picture -= 22 * cv2.GaussianBlur(spot, (0, 0), 2)[..., None] * generator.random(3)
    for _ in range(int(generator.integers(3, 6) * area)):
        centre, radius = _place(generator, height, width), int(generator.integers(2, 5))
        cv2.circle(labels, centre, radius, 1, -1)
    colour = np.array([120, 60, 95]) + generator.integers(-15, 15, 3)
    picture[labels == 1] = colour + generator.normal(0, 10, (int((labels == 1).sum()), 3))
    return _byte(picture), labels


def cracks(seed: int, height: int = SIDE, width: int = SIDE) -> Scene:
    """Draw dark broken lines on asphalt, label 1, and bright straight markings, label 0."""
    generator = np.random.default_rng(seed)
    picture = _ground(generator, height, width, (118, 116, 112), 16)
    labels = np.zeros((height, width), np.uint8)
    cv2.line(picture, _place(generator, height, width), _place(generator, height, width), (220, 222, 225), 4)
    for _ in range(max(2, int(2 * height * width / SIDE ** 2))):
        points = np.cumsum(np.vstack([_place(generator, height, width), generator.integers(-18, 19, (6, 2))]), axis=0)
        cv2.polylines(labels, [points.astype(np.int32)], False, 1, int(generator.integers(2, 5)))
    picture[labels == 1] = generator.normal(48, 9, (int((labels == 1).sum()), 3))
    return _byte(picture), labels


def shapes(seed: int, height: int = SIDE, width: int = SIDE) -> Scene:
    """Draw discs, squares and bars in colours that overlap, on ground: labels 1, 2, 3 and 0. Bars are the rarest."""
    generator = np.random.default_rng(seed)
    picture = _ground(generator, height, width, (90, 140, 110), 18)
    labels = np.zeros((height, width), np.uint8)
    for _ in range(max(4, int(5 * height * width / SIDE ** 2))):
        kind = int(generator.choice([1, 1, 2, 2, 3]))
        x, y = _place(generator, height, width)
        size = int(generator.integers(8, 18))
        mask = _drawn(picture, generator, kind - 1, (x, y), size)
        labels[mask == 1] = kind
    return _byte(picture), labels


def objects(seed: int, height: int = SIDE, width: int = SIDE) -> tuple[Any, Any, Any, Any]:
    """Draw discs, squares and bars: picture, boxes (N, 4) x1 y1 x2 y2 of what is seen, classes 0, 1, 2, masks (N, H, W).

    Hidden ones are left out.
    """
    generator = np.random.default_rng(seed)
    picture = _ground(generator, height, width, (90, 140, 110), 18)
    owner = np.full((height, width), -1)
    kinds = []
    for number in range(max(4, int(5 * height * width / SIDE ** 2))):
        kind, (x, y), size = int(generator.integers(0, 3)), _place(generator, height, width), int(generator.integers(7, 20))
        mask = _drawn(picture, generator, kind, (x, y), size)
        owner[mask == 1] = number
        kinds.append((kind, int(mask.sum())))
    boxes, labels, masks = [], [], []
    for number, (kind, drawn) in enumerate(kinds):
        rows, columns = (owner == number).nonzero()
        if len(rows) > max(20, drawn // 3):
            boxes.append([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
            labels.append(kind)
            masks.append(owner == number)
    return (_byte(picture), np.array(boxes, np.float32).reshape(-1, 4), np.array(labels, np.int64),
            np.array(masks, np.uint8).reshape(-1, height, width))


DRAWN: dict[str, Callable[..., Scene]] = {'nuclei_unet': nuclei, 'cracks_sigmoid': cracks, 'shapes_slide': shapes}


def _drawn(picture: Any, generator: Any, kind: int, place: tuple[int, int], size: int) -> Any:
    """Draw a disc, a square or a bar into the picture; return its mask."""
    (x, y), mask = place, np.zeros(picture.shape[:2], np.uint8)
    if kind == 0:
        cv2.circle(mask, (x, y), size, 1, -1)
    elif kind == 1:
        cv2.rectangle(mask, (x - size, y - size), (x + size, y + size), 1, -1)
    else:
        cv2.line(mask, (x - 2 * size, y - size // 2), (x + 2 * size, y + size // 2), 1, 5)
    colour = np.array([(60, 70, 190), (190, 90, 70), (60, 190, 200)][kind]) + generator.integers(-25, 25, 3)
    picture[mask == 1] = colour + generator.normal(0, 14, (int(mask.sum()), 3))
    return mask


def _ground(generator: Any, height: int, width: int, colour: tuple[int, int, int], deviation: float) -> Any:
    coarse = generator.normal(0, 1, (max(height // 12, 2), max(width // 12, 2), 3)).astype(np.float32)
    grain = generator.normal(0, 6, (height, width, 3)).astype(np.float32)
    return np.array(colour, np.float32) + deviation * cv2.resize(coarse, (width, height)) + grain


def _place(generator: Any, height: int, width: int) -> tuple[int, int]:
    return int(generator.integers(0, width)), int(generator.integers(0, height))


def _byte(picture: Any) -> Any:
    return picture.clip(0, 255).astype(np.uint8)
