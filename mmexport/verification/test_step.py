"""Compare the model's own ``test_step`` with the adapter's outputs, on every sample.

Everything else in a verification compares an adapter with itself; here OpenMMLab's own post-processing is the reference. It does not
depend on a format, so it runs once: where a file agrees with the adapter, and the adapter with ``test_step``, the file agrees with it too.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..branches import Run, recorded
from ..checker.compare import compare
from ..checker.comparison import DEFAULT_TOLERANCE, Comparison
from ..checker.samples import Sample
from ..inputs.real_image import Photograph
from ..inputs.windows import joined
from ..utils.override import override
from ..utils.randomness import fixed_seed
from .own_methods import own_methods

RAW_HOLDS_NONE = 'raw outputs hold no decisions'


@dataclass(frozen=True)
class PipelineCheck:
    """Hold the comparison of one sample with ``test_step``, without padding; or why that was not run.

    Attributes:
        own: of one that failed, methods of the user's own that ``test_step`` runs.
    """

    sample: str
    agreement: float = 0.0
    reason: str | None = None
    padded: tuple[int, int] = (0, 0)
    image: tuple[int, ...] = ()
    skipped: str | None = None
    own: tuple[str, ...] = ()

    @property
    def passed(self) -> bool | None:
        return None if self.skipped else self.reason is None

    @property
    def summary(self) -> str:
        if self.skipped:
            return f'not run: {self.skipped}'
        result = f"{self.agreement:.3%} agrees ({'pass' if self.passed else 'FAIL'})"
        return f'{result}, padding {self.padded[0]}x{self.padded[1]}' if any(self.padded) else result

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), 'passed': self.passed}


def why_not_run(adapter: Adapter) -> str | None:
    """Return why there is nothing to compare with ``test_step``, or None."""
    if adapter.outputs != 'final':
        return RAW_HOLDS_NONE
    if not callable(getattr(adapter.model, 'test_step', None)):
        return f'{type(adapter.model).__name__} has no test_step'
    return None


def check_sample(adapter: Adapter, sample: Sample, device: torch.device, photograph: Photograph | None = None,
                 tolerance: float = DEFAULT_TOLERANCE, runs: dict[str, Run] | None = None) -> PipelineCheck:
    """Compare the adapter's outputs in `sample` with ``test_step`` on the same input, unless `why_not_run`.

    Args:
        photograph: where the sample is a picture that the test pipeline made; then ``test_step`` gets what the pipeline returned, and
            does its own preprocessing.
        runs: gets what ``test_step`` decided, by the sample's name, where it can be recorded.
    """
    image = sample.image.to(device)
    facts: dict[str, Any] = dict(image=tuple(image.shape))
    window = adapter.notes().get('sliding', {}).get('window')
    if window and (image.shape[2] > window[0] or image.shape[3] > window[1]):
        return PipelineCheck(sample.name, skipped='it is larger than the window that test_step slides', **facts)
    with torch.no_grad():
        if photograph is None or photograph.packed is None:
            predictions, run = _recorded_test_step(adapter, image)
            if run is not None and runs is not None:
                runs[sample.name] = run
            return _judged(adapter, sample, _on_cpu(adapter.read(predictions)), tolerance, facts)
        answers = _on_cpu(adapter.read(run_test_step(adapter, photograph.packed)))
        if not any(photograph.padding):
            return _judged(adapter, sample, answers, tolerance, facts)
        normalized = adapter.network_inputs(image)[0]
        raw = tuple(sample.raw[spec.name].to(device) for spec in adapter.raw_specs)
        shares = _cropped_agreements(adapter, answers, sample, photograph.img_shape, raw, normalized)
    wrong = f'{min(shares):.2%} agrees with test_step, 100.00% must' if min(shares) < 1 else None
    return PipelineCheck(sample.name, min(shares), wrong, photograph.padding, own=own_methods(adapter.model) if wrong else (), **facts)


def _judged(adapter: Adapter, sample: Sample, answers: Mapping[str, Tensor], tolerance: float, facts: dict[str, Any]) -> PipelineCheck:
    """Compare by the rules of the checker, scores included; the evidence is of the adapter's rows, so those are expected."""
    rows = _rows(adapter, sample, sample.expected, sample.evidence, answers, tolerance)
    wrong = next((f'{row.output}: {row.reason}' for row in rows if not row.passed), None)
    return PipelineCheck(sample.name, min(1 - (row.beyond or 0.0) if row.problem is None else 0.0 for row in rows), wrong,
                         own=own_methods(adapter.model) if wrong else (), **facts)


def _rows(adapter: Adapter, sample: Sample, expected: Mapping[str, Tensor], evidence: Mapping[str, Tensor], answers: Mapping[str, Tensor],
          tolerance: float) -> list[Comparison]:
    specs = [spec.as_dict() for spec in adapter.specs]
    return compare(specs, expected, [answers[str(spec['name'])] for spec in specs], evidence, sample=sample.name,
                   stage='test_step vs adapter', floors=sample.floors, tolerance=tolerance)


def run_test_step_on(adapter: Adapter, *inputs: Tensor) -> list[Any]:
    """Run ``test_step`` on what `Adapter.network_inputs` returns, which is preprocessed already."""
    with override(adapter.model.data_preprocessor, 'forward', lambda data, training=False: data), fixed_seed(), adapter.testing():
        predictions: list[Any] = adapter.model.test_step(adapter.test_data(*inputs))  # type: ignore[operator]
    return predictions


def _recorded_test_step(adapter: Adapter, image: Tensor) -> tuple[list[Any], Run | None]:
    """Run ``test_step``, and return also what it decided, if recording does not disturb it."""
    inputs = adapter.network_inputs(image)
    run, marked = Run(), [each.clone() for each in inputs]
    try:
        with recorded(run, *marked):
            return run_test_step_on(adapter, *marked), run
    except Exception:  # If it is the model's own error it comes again.
        return run_test_step_on(adapter, *inputs), None


def run_test_step(adapter: Adapter, packed: Mapping[str, Any]) -> list[Any]:
    """Return the data samples of ``model.test_step``. They have the pipeline's size, not that of the original picture."""
    packed = deepcopy(dict(packed))
    sample = packed['data_samples']
    height, width = sample.metainfo['img_shape'][:2]
    sample.set_metainfo(adapter.unscaled((height, width)))
    with fixed_seed(), adapter.testing():
        predictions: list[Any] = adapter.model.test_step(dict(inputs=[packed['inputs']], data_samples=[sample]))  # type: ignore[operator]
    return predictions


def check_slid(adapter: Adapter, windows: Sample, whole: Tensor, tolerance: float = DEFAULT_TOLERANCE) -> PipelineCheck:
    """Compare a whole picture, joined from its `windows`, with what ``test_step`` computes by sliding. The windows hold logits; `whole` is
    the picture."""
    sliding = adapter.notes()['sliding']
    with torch.no_grad():
        answers = _on_cpu(adapter.read(run_test_step_on(adapter, *adapter.network_inputs(whole))))
    expected = {'logits': joined(windows.expected['logits'], whole.shape[2:], sliding)}
    sample = Sample('slid picture', whole.cpu(), expected, floors=windows.floors)
    return _judged(adapter, sample, answers, tolerance, dict(image=tuple(whole.shape)))


def _cropped_agreements(adapter: Adapter, answers: Mapping[str, Tensor], sample: Sample, size: tuple[int, int], raw: tuple[Tensor, ...],
                        image: Tensor) -> list[float]:
    """Return by output the share of units that agree. Only units outside the padding where eager is clear are compared."""
    def cropped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor[..., :size[0], :size[1]] if tensor.dim() > 2 and tensor.shape[-2:] == sample.image.shape[-2:] else tensor
                for name, tensor in tensors.items()}

    expected, evidence = adapter.without_padding(raw, image, size, cropped(sample.expected), cropped(sample.evidence))
    rows = _rows(adapter, sample, expected, evidence, answers, DEFAULT_TOLERANCE)
    # Without the factor that `Comparison` allows beyond a floor; decisions must agree wherever eager is clear.
    return [0.0 if row.beyond is None else 1 - (max(row.beyond - row.floor, 0.0) if row.continuous else row.beyond) for row in rows]


def _on_cpu(answers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in answers.items()}


def summary_lines(checks: Sequence[PipelineCheck]) -> list[str]:
    """Return lines for the samples that agree, fail, and were not run. Padded samples have their own."""
    if not checks:
        return []
    agree = [check for check in checks if check.passed]
    lines = []
    if agree:
        padded = [f'{check.sample} padded by {check.padded[0]}x{check.padded[1]}' for check in agree if any(check.padded)]
        # Beside failures the share of those that agree would look like that of all.
        share = '' if any(check.passed is False for check in checks) else f' ({min(check.agreement for check in agree):.3%})'
        lines.append(f'test_step: agrees on {len(agree)} of {len(checks)} inputs{share}')
        lines += [f'  {line}' for line in padded]
    failed = [check.sample for check in checks if check.passed is False]
    if failed:
        lines += wrap(f"test_step: FAIL on {len(failed)} of {len(checks)} inputs: {', '.join(failed)}", 80)
    reasons = dict.fromkeys(check.skipped for check in checks if check.skipped)
    for reason in reasons:
        names = [check.sample for check in checks if check.skipped == reason]
        lines += wrap(f"test_step: not run{'' if len(names) == len(checks) else ' on ' + ', '.join(names)}: {reason}", 80)
    return lines
