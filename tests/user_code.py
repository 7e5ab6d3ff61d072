"""Define heads as users write them, each with one thing that a tracer decides once or an adapter cannot know."""
from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from torch import Tensor, nn

from mmexport.compat import provide_mmcv_ext
from mmexport.model.config import load_config

provide_mmcv_ext()
from mmseg.models.decode_heads import FCNHead  # noqa: E402
from mmseg.registry import MODELS  # noqa: E402

from . import user_models  # noqa: E402, F401

TRAINED = Path(__file__).parent / 'data' / 'trained'


@MODELS.register_module(force=True)
class UserHead(FCNHead):
    """Do `habit` to the features (N, C, h, w); their sides are a quarter of the picture's."""

    def __init__(self, habit: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.habit = habit
        self.factors = {20: 1.5, 41: 1.7}
        self.known: dict[int, Any] = {}
        self.scales = nn.ModuleList(nn.Softsign() if side == 11 else nn.Identity() for side in range(150))
        self.gains = [1.5 if side == 44 else 1.0 for side in range(600)]

    def _forward_feature(self, inputs: Any) -> Tensor:
        features: Tensor = getattr(self, self.habit)(super()._forward_feature(inputs))
        return features

    def branch_on_aspect(self, y: Tensor) -> Tensor:
        h, w = y.shape[-2:]
        return y * 1.5 if 3 * h < 2 * w - 20 else y

    def branch_on_area(self, y: Tensor) -> Tensor:
        if y.shape[2] * y.shape[3] > 30 * 30:
            y = y * 1.5
        return y

    def branch_on_wide(self, y: Tensor) -> Tensor:
        if y.shape[3] > 3 * y.shape[2]:
            y = y * 1.5
        return y

    def branch_on_int(self, y: Tensor) -> Tensor:
        return y * 1.5 if math.ceil(int(y.shape[2]) / 2) > 22 else y

    def branch_between(self, y: Tensor) -> Tensor:
        return y * 1.5 if 40 < y.shape[2] < 46 else y

    def branch_beyond(self, y: Tensor) -> Tensor:
        return y * 1.5 if 46 < y.shape[2] < 50 else y

    def branch_behind_values(self, y: Tensor) -> Tensor:
        (y.detach().mean(dim=1) > 1e9).nonzero()
        return y * 1.5 if 40 < y.shape[2] < 46 else y

    def branch_on_all(self, y: Tensor) -> Tensor:
        return y * 1.5 if y.shape[0] * y.shape[2] * y.shape[3] > 5000 else y

    def even_batch(self, y: Tensor) -> Tensor:
        return y * 1.5 if y.shape[0] % 2 == 0 else y

    def some_batches(self, y: Tensor) -> Tensor:
        return y * 1.5 if 3 <= y.shape[0] <= 6 else y

    def odd_map(self, y: Tensor) -> Tensor:
        return y * 1.5 if y.shape[3] & 1 else y

    def nothing_found(self, y: Tensor) -> Tensor:
        if (y.abs().mean(dim=1) > 1e9).nonzero().shape[0] > 0:
            y = y * 1.5
        return y

    def read_by_numpy(self, y: Tensor) -> Tensor:
        return y * float(np.clip(8 / max(float(y.detach().abs().max().numpy()), 1e-6), 0.0, 1.0) > 0)

    def one_pair_of_sides(self, y: Tensor) -> Tensor:
        return y * 1.5 if y.shape[2] == 40 and y.shape[3] == 48 else y

    def every_eleventh(self, y: Tensor) -> Tensor:
        return y * 1.5 if y.shape[2] % 11 == 0 else y

    def caught(self, y: Tensor) -> Tensor:
        try:
            if y.shape[2] % 19 == 0:
                raise ValueError('no map of 19 rows')
        except ValueError:
            y = y * 1.5
        return y

    def table_of_sizes(self, y: Tensor) -> Tensor:
        return y * {20: 1.5}.get(y.shape[3], 1.0)

    def table_of_the_module(self, y: Tensor) -> Tensor:
        return y * (self.factors[int(y.shape[3])] if y.shape[3] in self.factors else 1.0)

    def cache_of_sizes(self, y: Tensor) -> Tensor:
        size = y.shape[2], y.shape[3]
        if y.shape[3] not in self.known:
            self.known[y.shape[3]] = size
        return y

    def list_of_gains(self, y: Tensor) -> Tensor:
        return y * self.gains[y.shape[2]]

    def list_of_modules(self, y: Tensor) -> Tensor:
        scaled: Tensor = self.scales[y.shape[2] // 4](y)
        return scaled

    def counted_by_a_loop(self, y: Tensor) -> Tensor:
        rows = 0
        for _ in y[0, 0]:
            rows += 1
        return y * 1.5 if rows == 45 else y

    def by_storage(self, y: Tensor) -> Tensor:
        return y * 1.5 if y.contiguous().untyped_storage().nbytes() == 4 * 16 * 45 * 37 else y

    def by_divisor(self, y: Tensor) -> Tensor:
        return y * 1.5 if math.gcd(y.shape[2], y.shape[3]) == 15 else y

    def by_name(self, y: Tensor) -> Tensor:
        return y * 1.5 if f'{y.shape[2]}x{y.shape[3]}' in ('45x30',) else y

    def by_ratio(self, y: Tensor) -> Tensor:
        return y * 1.5 if math.isclose(y.shape[3] / y.shape[2], 16 / 9, rel_tol=0.02) else y

    def by_stride(self, y: Tensor) -> Tensor:
        return y * 1.5 if 1290 < y.stride(1) < 1345 else y

    def by_bytes(self, y: Tensor) -> Tensor:
        return y * 1.5 if 9500 < y[:1, :1].nbytes < 9900 else y

    def info_pool(self, y: Tensor, large: bool) -> Tensor:
        return y * 1.5 if large else y

    def asked_in_an_argument(self, y: Tensor) -> Tensor:
        return self.info_pool(y, 40 < y.shape[2] < 46)

    def whole_windows(self, y: Tensor) -> Tensor:
        if y.shape[2] % 11:
            raise ArithmeticError('no whole windows')
        return y * 1.5

    def caught_by_the_caller(self, y: Tensor) -> Tensor:
        try:
            return self.whole_windows(y)
        except ArithmeticError:
            return y

    def by_square_root(self, y: Tensor) -> Tensor:
        return y * 1.5 if 36.1 < math.sqrt(y.shape[2] * y.shape[3]) < 36.2 else y

    def by_numpy(self, y: Tensor) -> Tensor:
        return y * 1.5 if np.prod(y.shape[2:]) == 1850 else y

    def by_numel(self, y: Tensor) -> Tensor:
        return y * 1.5 if y.shape[2:].numel() == 1850 else y

    def branch_on_long_side(self, y: Tensor) -> Tensor:
        return y * 1.5 if max(y.shape[2], y.shape[3]) > 500 else y

    def chunks_of_a_batch(self, y: Tensor) -> Tensor:
        return torch.cat([y[start:start + 4] * 1.5 for start in range(0, y.shape[0], 4)])

    def chunks_of_rows(self, y: Tensor) -> Tensor:
        return torch.cat([y[:, :, start:start + 32] * 1.5 for start in range(0, y.shape[2], 32)], dim=2)

    def fourteen_sizes(self, y: Tensor) -> Tensor:
        for side in range(17, 31):
            if y.shape[2] == side:
                y = y * 1.0
        return y

    def refuses_a_size(self, y: Tensor) -> Tensor:
        if y.shape[2] == 25:
            raise ValueError('no picture of 100 rows')
        return y

    def plain(self, y: Tensor) -> Tensor:
        return y


def config(head: str = 'plain', model: str = 'plain', name: str = 'cracks_sigmoid', **export: Any) -> tuple[Config, str]:
    """Return the trained model of `name` with a user's head and model around its weights, and its checkpoint."""
    cfg = load_config(TRAINED / f'{name}.py')
    with DefaultScope.overwrite_default_scope('mmseg'):
        cfg.model.type, cfg.model.habit = 'UserModel', model
        cfg.model.decode_head.type, cfg.model.decode_head.habit = 'UserHead', head
    cfg.export = export
    return cfg, str(TRAINED / f'{name}.pth')
