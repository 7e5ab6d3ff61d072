"""Summarize the branches of a model for the report."""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .run import Key, Run, Site
from .search import BranchLog

LISTS = ('turned', 'never', 'once', 'unresolved', 'accepted', 'avoided', 'escaped')


@dataclass(frozen=True)
class Branches:
    """Hold the conditions of a model that a tracer decides once.

    Attributes:
        turned: had more than one answer over the verified inputs; parity judges them.
        never: depend on the size, and had one answer at all sizes that were tried, the corners of the ranges among them; of these the
            terminal shows the user's own. In ``a < x < b`` both comparisons have one position, so that a listed line may have been turned.
        once: depend on values, and had one answer on all pictures; stand beside the verdict.
        unresolved: a size within the ranges turns them, and could not be verified; the run does not pass.
        accepted: the user takes responsibility for them (``--accept-branch``).
        avoided: a size turns them which could not be verified, and which the ranges leave out.
        escaped: places in the user's own code where a size goes into a function or a table that is not followed; what is decided from it
            is tried at the verified sizes only.
        sizes: how many sizes were tried, verified or not.
        note: why recording was left out, or how else than usual sizes were looked at; None where there is nothing to say.
        by_input: conditions that an input answers otherwise than the traced one does, by its name.
    """

    turned: tuple[Site, ...] = ()
    never: tuple[Site, ...] = ()
    once: tuple[Site, ...] = ()
    unresolved: tuple[Site, ...] = ()
    accepted: tuple[Site, ...] = ()
    avoided: tuple[Site, ...] = ()
    escaped: tuple[Site, ...] = ()
    sizes: int = 0
    note: str | None = None
    by_input: Mapping[str, tuple[Site, ...]] = field(default_factory=dict)

    def turned_by(self, inputs: Collection[str]) -> tuple[Site, ...]:
        """Return the conditions that one of `inputs` turns; all that are turned where nothing is known of these inputs."""
        return _sorted({site for name in inputs for site in self.by_input.get(name, ())}) or self.turned

    def joined(self, other: Branches) -> Branches:
        """Return these and the conditions of `other`. They were looked for in another part of the model."""
        lists = {name: _sorted({*getattr(self, name), *getattr(other, name)}) for name in LISTS}
        by_input = {name: _sorted({*self.by_input.get(name, ()), *other.by_input.get(name, ())})
                    for name in {**self.by_input, **other.by_input}}
        return Branches(**lists, sizes=max(self.sizes, other.sizes), note=self.note or other.note, by_input=by_input)

    @property
    def reasons(self) -> list[str]:
        return [f'branch at {site.place}: {site.text}: a size within the declared ranges turns it, and no input that was checked does: '
                f'check one (export.verify.shapes), or accept it, at your own risk, with --accept-branch {site.place}'
                for site in self.unresolved]

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows: branches that were decided once, and what the user accepted."""
        for site in self.never:
            if site.in_user_code:
                also = ' (or a part of it)' if site in self.turned else ''
                yield f'one answer at all {self.sizes} sizes tried: {site.place}: {site.text}{also}'
        for site in self.once:
            yield f'decided once: {site.place}: {site.text}: a branch on a value, with one answer on every picture tried'
        for site in self.avoided:
            yield f'ranges made smaller: {site.place}: {site.text}: sizes that turn it could not be checked; the file refuses them'
        for site in self.escaped:
            yield (f'not followed: {site.place}: {site.text}: a size goes where it cannot be followed; what the code does with it was '
                   'compared at the sizes tried, and is not known at others')
        for site in self.accepted:
            yield f'accepted: {site.place}: {site.text}'
        if self.note:
            yield f'branches: {self.note}'

    def as_dict(self) -> dict[str, Any]:
        return {**{name: [site.as_dict() for site in getattr(self, name)] for name in LISTS}, 'sizes': self.sizes, 'note': self.note}


def judge_branches(log: BranchLog, unresolved: Collection[Key], note: str | None = None, avoided: Collection[Key] = ()) -> Branches:
    """Sort the conditions of `log`; `unresolved` are those that some size turns at which nothing could be verified.

    Args:
        note: how sizes were looked at, where it is not as usual.
        avoided: those of which such a size lies outside the ranges.
    """
    keys = {key for run in log.runs.values() for key in run.conditions if log.judges(key[0])}
    left, once = log.open_keys('size'), log.open_keys('value')
    escaped = escaped_sites(log.runs.values(), log.judges)
    turned = _sites([key for key in keys if len(log.answers(key)) > 1])
    # A helper that is called from several places is named once.
    avoided_sites = {key[0] for key in avoided}
    never = {key for key in left - set(unresolved) if key[0] not in escaped | avoided_sites}
    return Branches(turned=turned, never=_sites(never),
                    once=_sites(once), unresolved=_sites(unresolved), accepted=_sites([key for key in keys if log.is_accepted(key[0])]),
                    avoided=_sites({key for key in avoided if len(log.answers(key)) < 2}),
                    escaped=_sorted(escaped),
                    sizes=len({*log.shapes.values(), *log.swept}), note=note, by_input=_by_input(log))


def escaped_sites(runs: Iterable[Run], judges: Callable[[Site], bool]) -> set[Site]:
    """Return the user's lines at which changing numbers went where they are not followed. The numbers differ from input to input."""
    numbers: dict[Site, set[Any]] = {}
    for run in runs:
        for site, operands in run.escaped.items():
            numbers.setdefault(site, set()).update(operands)
    return {site for site, operands in numbers.items() if len(operands) > 1 and site.in_user_code and judges(site)}


def _by_input(log: BranchLog) -> dict[str, tuple[Site, ...]]:
    """Return by input the conditions that it answers otherwise than the traced input. The traced input is the first of `log`."""
    traced = next(iter(log.runs.values()), Run()).conditions
    return {name: _sites([key for key, (answer, _) in run.conditions.items() if key in traced and traced[key][0] != answer
                          and log.judges(key[0])])
            for name, run in log.runs.items()}


def _sites(keys: Sequence[Key] | Collection[Key]) -> tuple[Site, ...]:
    return _sorted({key[0] for key in keys})


def _sorted(sites: Collection[Site]) -> tuple[Site, ...]:
    return tuple(sorted(sites, key=lambda site: (site.file, site.line, site.column)))
