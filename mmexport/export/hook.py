"""Export the best checkpoint when training ends, as an mmengine hook. The log says whether the file is right."""
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import Runner

from ..errors import VerificationError
from ..registry import HOOKS
from .exporter import Exporter

# Pictures of the validation set that are inputs of the verification.
PICTURES = 3


@HOOKS.register_module()
class ExportHook(Hook):
    """Export at the end of training: ``custom_hooks=[dict(type='mmexport.ExportHook')]``; the ``export`` section applies.

    Args:
        out_dir: default: ``export`` in the runner's work dir.
        device: where to export and to verify.
        strict: raise where the file cannot be shown to be right; else the reasons are logged and training ends as usual.

    Raises:
        Exception: with `strict`, whatever stopped the export.
    """

    priority = 'VERY_LOW'

    def __init__(self, out_dir: str | None = None, device: str = 'cpu', strict: bool = False) -> None:
        self.out_dir, self.device, self.strict = out_dir, device, strict

    def after_train(self, runner: Runner) -> None:
        if not is_main_process():
            return
        out_dir = Path(self.out_dir or Path(runner.work_dir) / 'export')
        try:
            checkpoint = best_checkpoint(runner)
            runner.logger.info(f'exporting {checkpoint} to {out_dir}')
            cfg = copy.deepcopy(runner.cfg)
            chosen_pictures = (cfg.get('export') or {}).get('inputs', {}).get('image')
            pictures = [] if chosen_pictures else validation_pictures(runner)
            reports = Exporter(cfg, str(checkpoint), out_dir, self.device, more_pictures=pictures).run()
        except Exception as exc:  # An error of the export must not end hours of training; it is logged.
            if self.strict:
                raise
            runner.logger.error(f'mmexport: {type(exc).__name__}: {exc}')
            return
        for report in reports:
            for line in report.lines():
                (runner.logger.error if report.passed is False else runner.logger.info)(line)
        reasons = [reason for report in reports if report.passed is not True for reason in report.reasons]
        if self.strict and any(report.passed is not True for report in reports):
            raise VerificationError('; '.join(reasons))


def validation_pictures(runner: Any) -> list[str]:
    """Return the files of the first pictures of the runner's validation loader; none if its dataset does not name them."""
    try:
        loader = runner.val_dataloader
        dataset = None if loader is None else Runner.build_dataloader(loader).dataset if isinstance(loader, dict) else loader.dataset
        infos = [dataset.get_data_info(index) for index in range(min(PICTURES, len(dataset)))] if dataset is not None else []
        return [str(info['img_path']) for info in infos if Path(str(info.get('img_path', ''))).is_file()]
    except Exception as exc:  # A user's dataset may raise anything; the pictures are optional, so the export continues without them.
        runner.logger.warning(f'mmexport: no validation picture is taken: {type(exc).__name__}: {exc}')
        return []


def best_checkpoint(runner: Any) -> Path:
    """Return the best checkpoint that a CheckpointHook kept, else the last one.

    Raises:
        VerificationError: no checkpoint was written.
    """
    for hook in runner.hooks:
        if isinstance(hook, CheckpointHook):
            several = getattr(hook, 'best_ckpt_path_dict', None) or {}
            for path in (getattr(hook, 'best_ckpt_path', None), *several.values(), *_last(runner)):
                if path and Path(path).is_file():
                    return Path(path)
    raise VerificationError(f'{runner.work_dir} has no checkpoint to export: add default_hooks.checkpoint, with save_best')


def _last(runner: Any) -> list[str]:
    note = Path(runner.work_dir) / 'last_checkpoint'
    return [note.read_text().strip()] if note.is_file() else []
