"""Make the inputs of a verification: sizes that eager takes, synthetic scenes of those sizes, and photographs."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..errors import ConfigError, InputError, MMExportError, eager_in_words, last_line
from ..utils.progress import Progress
from .decisive import decisive_size
from .real_image import PACKAGED, PHOTOGRAPH, Photograph, picture_files, pipeline_scale, read_photograph
from .shapes import TRACED, Plan, Shape, plan_shapes, within_budget
from .size_rules import SizeRules, find_size_rules
from .synthetic import picture, scenes
from .windows import windows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mmengine.config import Config

# The windows of a picture over which a model slides, as one batch.
WINDOWS = 'windows'


@dataclass(frozen=True)
class Inputs:
    """Hold the inputs by name, the traced one first.

    Attributes:
        plan: their shapes, and which sizes the model takes.
        images: (N, C, H, W) each; the windows of `slid` and the photographs are among them.
        photographs: the packaged one and the user's, by name.
        slid: the picture that a sliding model goes over in some windows; None for other models.
    """

    plan: Plan
    images: dict[str, Tensor]
    photographs: dict[str, Photograph]
    slid: Tensor | None

    @property
    def traced(self) -> Tensor:
        return self.images[TRACED]


@dataclass(frozen=True)
class InputMaker:
    """Make the inputs of one run.

    Attributes:
        section: the config's ``export`` section.
        shape: (N, C, H, W) of the traced input.
        more_pictures: files beside those of ``export.inputs.image``; one that cannot be read is a note, no error.
        photographs_too: whether photographs are read at all.
        preflight: raises where the model would fail on an image for another reason than its size.
    """

    cfg: Config
    section: Mapping[str, Any]
    adapter: Adapter
    shape: Shape
    device: torch.device
    step: Progress
    more_pictures: Sequence[str]
    photographs_too: bool
    preflight: Callable[[Tensor], object]

    def make(self) -> Inputs:
        with self.step('Finding out which sizes eager takes', 'making inputs'):
            rules = self._size_rules()
        traced = self._picture(self.shape, 0)
        photographs = self._photographs(traced, rules) if self.photographs_too else {}
        if not self.photographs_too and self.section['inputs']['image']:
            self.step.note('the pictures of --image (export.inputs.image) were not read, for nothing is checked')
        sizes = [tuple(photograph.image.shape[2:]) for photograph in photographs.values()]
        if self.section['outputs'] == 'final' and self.adapter.class_count:
            sizes.append(decisive_size(self.shape, rules))
        plan = plan_shapes(self.shape, self.section, rules, sizes)
        slid = self._slid_picture()
        windows = {} if slid is None else {WINDOWS: windows_of(slid, self.adapter.notes()['sliding'])}
        pictures = {name: photograph.image for name, photograph in photographs.items()}
        return Inputs(plan, {**scenes(plan.shapes, self.adapter, self.device), **windows, **pictures}, photographs, slid)

    def _picture(self, shape: Sequence[int], seed: int) -> Tensor:
        return picture(shape, seed, self.adapter).to(self.device)

    def _slid_picture(self) -> Tensor | None:
        """Return a picture of two windows side by side that overlap; None where the file gives no logits of windows, or takes no batch.

        Logits of a window are large (150 classes at 512x512: 157 MB), so that there are no more of them.
        """
        sliding = self.adapter.notes().get('sliding')
        dynamic = self.section['inputs']['dynamic'] or ()
        if not sliding or self.adapter.outputs != 'final' or 'batch' not in dynamic or not self.photographs_too:
            return None
        height, width = sliding['window']
        return self._picture((1, self.adapter.channels, height, width + sliding['stride'][1] // 2), 200)

    def _size_rules(self) -> SizeRules:
        """Find out which sizes the unpatched eager model takes.

        Raises:
            InputError: it does not take the traced one; the message says which it takes.
        """
        if not {'height', 'width'} & set(self.section['inputs']['dynamic'] or ()):
            return SizeRules(fixed=True)

        def refusal(height: int, width: int) -> str | None:
            image = self._picture((1, self.adapter.channels, height, width), 0)
            try:
                with torch.no_grad():
                    self.adapter.raw(*self.adapter.network_inputs(image))
            except MMExportError:  # An op that is missing here is no rule about sizes.
                raise
            except Exception as exc:  # Upstream may raise anything; it is kept as the reason of the rule.
                return f'{height}x{width}: {type(exc).__name__}: {last_line(exc)}'
            return None

        height, width = self.shape[2:]
        with eager_in_words({TRACED: torch.empty(self.shape)}, hint=False):
            rules = find_size_rules(refusal, (height, width))
            # Small sizes tell the rules; a traced size that follows them is run for its outputs anyway.
            reason = None if rules.takes(height, width) and not rules.fixed else refusal(height, width)
            if reason:
                with suppress(InputError):  # Two dtypes that meet are no question of size, and the audit names the line.
                    self.preflight(self._picture(self.shape, 0))
                other = find_size_rules(refusal, tuple(64 * -(-side // 64) for side in (height, width)))
                raise InputError(f'the unpatched eager model does not take the traced size: {reason}. ' + (
                    f'It takes {other.in_words()}: --shape {other.up(height)} {other.up(width)}'
                    if not other.fixed else 'Give the size that it was made for: --shape H W'))
        return rules

    def _photographs(self, traced: Tensor, rules: SizeRules) -> dict[str, Photograph]:
        """Read the packaged photograph, and the user's own pictures."""
        photographs = {}
        common: dict[str, Any] = dict(adapter=self.adapter, device=self.device, like=traced, rules=rules)
        if self.adapter.channels == 3:
            scale = pipeline_scale(self.cfg)
            size = scale if scale and within_budget(self.shape, scale) else self.shape[2:]
            if scale and size != scale:
                self.step.note(f'not checked at the test pipeline\'s own scale, {scale[0]}x{scale[1]}: too large for the time limit of a '
                               'check. Pictures given by --image are checked at that scale')
            try:
                photographs[PHOTOGRAPH] = read_photograph(self.cfg, str(PACKAGED), size=size, **common)
            except InputError as exc:  # The test pipeline needs more than a picture, annotations for example; this one is optional.
                self.step.note(f'the packaged photograph was left out: {exc}')
        for name, path in picture_files(self.section['inputs']['image']).items():
            photographs[name] = read_photograph(self.cfg, path, **common)
        for name, path in picture_files(self.more_pictures).items():
            try:
                photographs.setdefault(name, read_photograph(self.cfg, path, **common))
            except (InputError, ConfigError) as exc:  # These pictures are optional.
                self.step.note(f'{path} was left out: {exc}')
        return photographs
