"""Express the config's data_preprocessor as graph operations, and as text for the manifest."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ConfigError

# Of the pictures by which a data_preprocessor is known.
SIDES, SMALL, LARGE = (61, 83), (33, 48), (768, 1280)


def preprocessed(model: nn.Module, picture: Tensor) -> Tensor:
    """Apply the model's data_preprocessor to a picture (C, H, W), uint8; return an image (1, C, h, w), possibly padded."""
    from mmengine.structures import BaseDataElement
    shape = tuple(picture.shape[1:])
    sample = BaseDataElement(metainfo=dict(img_shape=shape, ori_shape=shape, pad_shape=shape, scale_factor=(1.0, 1.0)))
    processed = model.data_preprocessor(dict(inputs=[picture], data_samples=[sample]), False)  # type: ignore[operator]
    return processed['inputs']  # type: ignore[no-any-return]


def network_channels(model: nn.Module) -> int:
    """Return how many channels the first convolution of the network takes; 3 if there is none.

    The Focus layer of YOLOX's backbone gives its convolution four pixels of each channel.
    """
    part = getattr(model, 'backbone', None)
    four = 1
    for module in (part if isinstance(part, nn.Module) else model).modules():
        four = 4 if type(module).__name__ == 'Focus' else four
        if isinstance(module, nn.Conv2d):
            return int(module.in_channels) // four
    return 3


@dataclass(frozen=True)
class Padding:
    """Describe how the data_preprocessor pads a picture when it predicts: right and bottom, after the normalisation.

    Attributes:
        divisor: the padded sides are multiples of it.
        size: or they have this height and width.
        value: of the normalised image.
    """

    divisor: int = 1
    size: tuple[int, int] | None = None
    value: float = 0.0

    @classmethod
    def of(cls, preprocessor: Any) -> Padding:
        """Read mmseg's ``test_cfg`` (its own ``size_divisor`` is of training), or mmengine's and mmdet's ``pad_size_divisor``."""
        if hasattr(preprocessor, 'test_cfg'):
            cfg = preprocessor.test_cfg or {}
            size = cfg.get('size')
            return cls(int(cfg.get('size_divisor') or 1), (int(size[0]), int(size[1])) if size else None,
                       float(getattr(preprocessor, 'pad_val', 0) or 0))
        return cls(int(getattr(preprocessor, 'pad_size_divisor', None) or 1), None, float(getattr(preprocessor, 'pad_value', 0) or 0))

    def padded(self, height: int, width: int) -> tuple[int, int]:
        if self.size is not None:
            return max(self.size[0], height), max(self.size[1], width)
        return -(-height // self.divisor) * self.divisor, -(-width // self.divisor) * self.divisor

    def describe(self) -> dict[str, Any]:
        return dict(sides='right and bottom', value=self.value, when='after the normalisation', divisor=self.divisor,
                    size=list(self.size) if self.size else None)


class Preprocess(nn.Module):
    """Normalise the image inside the graph, or return it unchanged.

    Args:
        mean, std: per channel, on the 0..255 scale, after the channel flip, as in mmengine's ImgDataPreprocessor.
        flip: whether the data_preprocessor swaps BGR and RGB.
        inside: whether the graph does it.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor, flip: bool, inside: bool, padding: Padding | None = None) -> None:
        super().__init__()
        self.register_buffer('mean', mean.clone().float().view(1, -1, 1, 1), persistent=False)
        self.register_buffer('std', std.clone().float().view(1, -1, 1, 1), persistent=False)
        self.flip, self.inside, self.padding = flip, inside, padding or Padding()
        self.unrecognised = False

    @classmethod
    def of(cls, model: nn.Module, inside: bool) -> Preprocess:
        preprocessor = getattr(model, 'data_preprocessor', None)
        # mmengine and mmdet write _channel_conversion, mmseg channel_conversion.
        flip = bool(getattr(preprocessor, 'channel_conversion', getattr(preprocessor, '_channel_conversion', False)))
        if getattr(preprocessor, '_enable_normalize', False):
            mean, std = preprocessor.mean, preprocessor.std  # type: ignore[union-attr]
        else:
            mean, std = torch.zeros(1), torch.ones(1)
        assert isinstance(mean, Tensor) and isinstance(std, Tensor)
        if mean.numel() == 1:
            channels = network_channels(model)
            mean, std = mean.flatten().expand(channels), std.flatten().expand(channels)
        if flip and mean.numel() < 3:
            flip = False
        if flip and mean.numel() % 3:
            raise ConfigError(f'the data_preprocessor swaps BGR and RGB of {mean.numel()} channels, and only threes have such an order: '
                              'set its bgr_to_rgb and rgb_to_bgr to False')
        return cls(mean.flatten(), std.flatten(), flip, inside, Padding.of(preprocessor))

    @property
    def channels(self) -> int:
        return int(self.mean.shape[1])

    @property
    def order(self) -> list[int]:
        """Swap channels by threes: of two pictures in one tensor each is swapped."""
        return [first + step for first in range(0, self.channels, 3) for step in (2, 1, 0)] if self.flip else list(range(self.channels))

    def forward(self, image: Tensor) -> Tensor:
        return self.normalize(image) if self.inside else image

    def normalize(self, picture: Tensor) -> Tensor:
        """Normalise a picture ``(N, C, H, W)``, 0..255, in the channel order of the file."""
        if self.flip:
            picture = picture[:, self.order]
        return (picture - self.mean) / self.std

    def undo(self, image: Tensor) -> Tensor:
        """Return the picture that `normalize` would turn into `image`."""
        picture = image * self.std + self.mean
        return picture[:, self.order] if self.flip else picture

    def check_against(self, model: nn.Module) -> None:
        """Raise if `normalize` and the model's own data_preprocessor differ on a picture.

        A class of the user's may do more than mmengine's; every later comparison is with our own reading of it.

        Raises:
            ConfigError: it is another one, and the graph was to do it. Outside the graph the manifest says that it is another one.
        """
        if not callable(getattr(model, 'data_preprocessor', None)):
            return
        picture = torch.randint(0, 256, (self.channels, *SIDES), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        processed = preprocessed(model, picture).to(self.mean)
        unpadded = processed[..., :SIDES[0], :SIDES[1]]
        if self.flip and self.channels != 3 and not self._makes(unpadded, picture):
            # mmseg does not reorder channels unless there are three, whatever its bgr_to_rgb says; a class for two pictures may swap both.
            self.flip = False
        self.unrecognised = not self._makes(unpadded, picture) or not all(self._agrees(model, other) for other in self._pictures())
        if not self.unrecognised and tuple(processed.shape[2:]) != self.padding.padded(*SIDES):
            # It pads by a rule that one picture does not reveal.
            self.unrecognised = not self.inside
        if self.unrecognised and self.inside:
            raise ConfigError(f'the {type(model.data_preprocessor).__name__} of this model does not make (picture - mean) / std of a '
                              'picture, so it cannot be put into the graph: leave export.inputs.normalize off and run it before the file')

    def _agrees(self, model: nn.Module, picture: Tensor) -> bool:
        """Return whether the model's own class makes what `normalize` makes; a picture that it refuses counts as agreeing."""
        try:
            processed = preprocessed(model, picture)
        except Exception:  # A class of the user's may raise anything.
            return True
        return self._makes(processed.to(self.mean)[..., :picture.shape[1], :picture.shape[2]], picture)

    def _pictures(self) -> Iterator[Tensor]:
        """Yield pictures that a class of the user's may treat in another way: dark, bright, of 0 and 1 only, blank, small, large."""
        generator = torch.Generator().manual_seed(1)
        for low, high, sides in ((0, 40, SIDES), (200, 256, SIDES), (0, 2, SIDES), (0, 1, SIDES), (0, 256, SMALL), (0, 256, LARGE)):
            yield torch.randint(low, high, (self.channels, *sides), dtype=torch.uint8, generator=generator)

    def _makes(self, image: Tensor, picture: Tensor) -> bool:
        expected = self.normalize(picture[None].to(self.mean))
        return image.shape == expected.shape and torch.allclose(image, expected, rtol=1e-4, atol=1e-4)

    def describe(self) -> dict[str, Any]:
        if self.unrecognised:
            return dict(inside_graph=False, pad_size_divisor=self.padding.divisor, padding=self.padding.describe(),
                        expects="image, as the model's own data_preprocessor makes it, which is not (picture - mean) / std")
        padding = self.padding.describe()
        if self.inside:
            # What the graph normalises to the value.
            value = self.undo(torch.full_like(self.mean, self.padding.value)).flatten().tolist()
            padding.update(value=value, when='before the normalisation, which the file does')
        return dict(inside_graph=self.inside, swaps_bgr_rgb=self.flip, channel_order=self.channel_order, mean=self.mean.flatten().tolist(),
                    std=self.std.flatten().tolist(), pad_size_divisor=self.padding.divisor, padding=padding,
                    expects='picture, 0..255, channels as read by the config (BGR for OpenCV)' if self.inside
                    else 'image, normalised: swap channels if swaps_bgr_rgb, then (picture - mean) / std')

    @property
    def channel_order(self) -> str:
        """Return the channel order of the file's input. Pictures are read as BGR by OpenCV and mmcv."""
        if self.channels != 3:
            return f'{self.channels} channels, as the config reads them'
        return 'RGB' if self.flip and not self.inside else 'BGR'
