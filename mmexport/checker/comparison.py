"""Hold the result of comparing one output of one input, and its pass rule."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from . import reduced
from .kinds import kind_of

# 1e-4 of an output's scale for float32: some hundred roundings of 6e-8, amplified by a network's depth (folding conv+bn alone moves
# ResNet-50's outputs by about 1e-6 to 1e-5), and a hundred times below what moves a decision.
DEFAULT_TOLERANCE = 1e-4
# With a floor above zero: how far the share beyond the tolerance may exceed the floor, and what no error may reach.
SLACK = 0.02
WORST = 1e-2
# Times the tolerance that the median may be off at most, however ill-conditioned the model is.
FAR = 5.0
# Times what eager's own rounding changes that a file may be from eager: it rounds as much, and in another way.
BOTH = 2.0

# What a row compares: a file with eager, or with eager under patches.
EAGER, PATCHED = 'artifact vs eager', 'artifact vs patched'
# The kind of a row that stands for an input which the file refuses.
REFUSED = 'refused'
# The kind of a row that stands for an input into which the file writes.
WRITES = 'writes'
# The kind of a row that stands for all outputs of an input.
COUNT = 'count'
# The output of such a row, and of a row for the raw outputs of an input.
ALL, RAW = '(all)', '(raw)'


def limit_of(tolerance: float, rounding: float) -> float:
    """Return what a value may be off where eager's own rounding changes it by `rounding`; both are relative to the scale."""
    return min(max(tolerance, BOTH * rounding), FAR * tolerance)


@dataclass(frozen=True)
class Comparison:
    """Hold the metrics of one output of one sample.

    `max_rel`, `median` and `beyond` are relative to the scale that the kind defines (`Units.scale`); `max_abs` is absolute.

    Attributes:
        problem: why values were not compared, or cannot be (a lost output, a shape, a dtype, a NaN); never passes.
        beyond: share of units (queries, pixels) whose error is over the tolerance; of label maps, of pixels that differ although
            eager's own decision was clear.
        median: median over units of their largest error.
        floor: the share beyond that eager shows against itself under noise of 1e-6; above zero the model is discontinuous.
        lost: share of instances that were not found again, and `lost_floor` what noise of 1e-6 loses of eager's: one that is lost is not
            excused by others that are a little off.
        median_floor: the largest median error of eager under noise of 1e-6; where it is over the tolerance, the model is ill-conditioned.
        rounding: how far this output of eager is from that of the same model in float64, or on other kernels of torch, whichever is more;
            only computed where a file is a little off.
        metrics: figures in the task's own terms.
        precision: what the file computes in; below float32 other rules hold, see `mmexport.checker.reduced`.
        again: of the traced sample's second call, after all others.
    """

    sample: str
    output: str
    stage: str
    kind: str
    tolerance: float
    problem: str | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    cosine: float | None = None
    beyond: float | None = None
    median: float | None = None
    floor: float = 0.0
    lost: float = 0.0
    lost_floor: float = 0.0
    median_floor: float = 0.0
    rounding: float = 0.0
    metrics: Mapping[str, Any] = field(default_factory=dict)
    precision: str = reduced.FULL
    again: bool = False

    @property
    def input_name(self) -> str:
        """Return the sample's name for messages."""
        return f'{self.sample} again' if self.again else self.sample

    @property
    def continuous(self) -> bool:
        return self.kind not in (COUNT, REFUSED, WRITES) and bool(kind_of(self.kind).CONTINUOUS)

    @property
    def _judge_reduced(self) -> Callable[[Comparison], str | None]:
        """Return the rule of the kind for reduced precision, or the usual one."""
        usual = reduced.by_error if self.continuous else reduced.by_share
        return usual if self.kind in (COUNT, REFUSED, WRITES) else getattr(kind_of(self.kind), 'reduced', usual)

    @property
    def median_limit(self) -> float:
        """Return what the median may be of a model with a floor: the tolerance, or what noise does to eager if that is more."""
        return min(max(self.tolerance, self.median_floor), FAR * self.tolerance)

    @property
    def limit(self) -> float:
        """Return what each value may be off: the tolerance, or what rounding does to eager if that is more."""
        return limit_of(self.tolerance, self.rounding)

    @property
    def rule(self) -> str:
        if self.precision != reduced.FULL:
            return reduced.rule(self.precision)
        if not self.continuous:
            return 'equal where eager is clear' if self.floor == 0 else f'differs clearly in at most {self.floor:.4f}, as under noise'
        if self.floor == 0:
            return f'max <= {self.limit:g}'
        return f'beyond <= {self.floor + SLACK:.3f}, median <= {self.median_limit:g}, max < {WORST:g}'

    @property
    def reason(self) -> str | None:
        """Return the reason for a failure, or None."""
        if self.problem:
            return self.problem
        if self.precision != reduced.FULL:
            return self._judge_reduced(self)
        # Decisions may differ as much as noise changes them, without the factor: two points of a label map are a segment.
        allowed = self.floor if self.floor == 0 or not self.continuous else self.floor + SLACK
        if not self.continuous:
            if self.beyond is None or not self.beyond <= allowed:
                return 'nothing was compared' if self.beyond is None else (
                    f'{self.beyond:.2%} differs where eager is clear, limit {allowed:.2%}')
            if self.lost > self.lost_floor:
                return f'{self.lost:.2%} of the instances are lost or new, limit {self.lost_floor:.2%}'
            if self.max_rel is not None and self.max_rel >= WORST:
                return f'worst score error {self.max_rel:.1e} of scale, limit {WORST:g}'
            return None
        if self.max_rel is None or self.beyond is None or self.median is None:
            return 'nothing was compared'
        if self.max_rel <= self.limit and (self.rounding or self.floor == 0):
            return None
        if self.floor == 0:
            return f'error {self.max_rel:.1e} of scale, limit {self.limit:g}'
        if not self.beyond <= allowed:
            return f'{self.beyond:.1%} beyond the tolerance, limit {allowed:.1%}'
        if not self.median <= self.median_limit:
            return f'median error {self.median:.1e} of scale, limit {self.median_limit:g}'
        return None if self.max_rel < WORST else f'worst error {self.max_rel:.1e} of scale, limit {WORST:g}'

    @property
    def passed(self) -> bool:
        return self.reason is None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), 'metrics': dict(self.metrics), 'rule': self.rule, 'reason': self.reason, 'passed': self.passed}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Comparison:
        return cls(**{key: value for key, value in content.items() if key not in ('rule', 'reason', 'passed')})
