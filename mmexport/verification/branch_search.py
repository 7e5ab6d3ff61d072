"""Find the Python branches of a model, and inputs that turn them. Those that an input turned already are left out."""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..branches import Branches, BranchInputs, BranchLog, Run, Site, has_own_code, inputs_for_branches, is_place, sizes_that_leave
from ..checker.samples import Sample
from ..errors import ConfigError
from ..inputs.making import WINDOWS
from ..inputs.real_image import PHOTOGRAPH
from ..inputs.shapes import SAME, TRACED, open_axes, ranges_of
from ..inputs.size_rules import SizeRules
from ..inputs.synthetic import picture, plain_picture
from ..utils.progress import Progress
from .network_runs import NetworkRuns
from .test_step import PipelineCheck, run_test_step_on

# Compares a sample with ``test_step``, and adds what that decided by the sample's name.
Check = Callable[[Sample, dict[str, Run]], PipelineCheck]


@dataclass
class BranchSearch:
    """Find branches in the network, then in what only ``test_step`` runs: post-processing and methods of inference.

    Attributes:
        section: the config's ``export`` section.
        sample_at: returns what eager answers on an input (its name, the image); None where eager refuses it.
        photographs: names of pictures; all but ours the ranges must contain.
        sites: the conditions that were found.
    """

    section: Mapping[str, Any]
    adapter: Adapter
    device: torch.device
    runs: NetworkRuns
    step: Progress
    sample_at: Callable[[str, Tensor], Sample | None]
    photographs: Collection[str]
    rules: SizeRules
    sites: set[Site] = field(default_factory=set)

    def of_network(self, samples: Sequence[Sample]) -> BranchInputs:
        """Find branches in the network and the adapter's decisions."""
        runs = {sample.name: self.runs.branches[sample.name] for sample in samples}
        log = self._log(self._run_network, samples, runs)

        def add(name: str, image: Tensor) -> tuple[Sample, Run] | None:
            sample = self.sample_at(name, image)
            return None if sample is None else (sample, self.runs.branches[name])

        with self.step('Looking for inputs that turn branches', 'making inputs'):
            found_inputs = self._inputs(log, samples, add)
            return replace(found_inputs, branches=self._with_leaving(found_inputs.branches, log, samples))

    def of_post_processing(self, network: BranchInputs, samples: Sequence[Sample], runs: Mapping[str, Run],
                           check: Check) -> tuple[BranchInputs, list[PipelineCheck]]:
        """Find what the user's own code decides in ``test_step`` alone. The sizes are those that `runs` were recorded at.

        Args:
            network: what was found in the network, which ``test_step`` runs too.
            runs: what ``test_step`` decided, by sample.

        Returns:
            The branches of both, with inputs that were added; and their comparisons with ``test_step``.
        """
        network = replace(network, samples=[], given_up=[])
        if not self.own_code or self.runs.note is not None or not runs:
            return network, []
        # A helper may be called in the network and outside it: then it is asked more often than the network alone asks.
        network_sites = {site for site in self.sites | set(network.branches.escaped)
                 if not any(_times_asked(run, site) > _times_asked(self.runs.branches[name], site) for name, run in runs.items())}
        recorded = [sample for sample in samples if sample.name in runs]
        log = self._log(self._run_test_step, recorded, dict(runs))
        log.judges = lambda site: site.in_user_code and site not in network_sites
        checks: list[PipelineCheck] = []

        def add(name: str, image: Tensor) -> tuple[Sample, Run] | None:
            # A plain picture may be there already.
            sample = None if name in runs else self.sample_at(name, image)
            if sample is None:
                return None
            added: dict[str, Run] = {}
            checks.append(check(sample, added))
            return (sample, added[name]) if name in added else None

        with self.step('Looking for inputs that turn branches outside the network', 'making inputs'):
            found_inputs = self._inputs(log, recorded, add)
            branches = self._with_leaving(found_inputs.branches, log, recorded)
        return replace(found_inputs, branches=network.branches.joined(branches)), checks

    @cached_property
    def own_code(self) -> bool:
        return has_own_code(self.adapter.model)

    def _with_leaving(self, branches: Branches, log: BranchLog, samples: Sequence[Sample]) -> Branches:
        """Add the places at which a size leaves Python. A trace without patches shows them."""
        if self.runs.note is not None or not self.own_code:
            return branches
        smallest = min(samples, key=lambda sample: sample.image.numel()).image.to(self.device)
        followed = {*log.sites, *self.sites, *(site for run in log.runs.values() for site in run.escaped)}
        leaving, error = sizes_that_leave(log.model, smallest, followed)
        note = branches.note or (error and f'sizes that leave Python were looked for up to where a trace without patches ends: {error}')
        return replace(branches, escaped=branches.escaped + leaving, note=note)

    def check_accepted(self) -> None:
        """Raise if the user accepts a branch that the model does not have."""
        for place in self._accepted:
            if self.runs.note is None and not any(is_place(place, site) for site in self.sites):
                places = ', '.join(sorted({site.place for site in self.sites})) or 'none'
                raise ConfigError(f'--accept-branch {place} (export.verify.accept_branches) names no branch of this model; '
                                  f'those that it has: {places}')

    @property
    def _accepted(self) -> tuple[str, ...]:
        return tuple(self.section['verify']['accept_branches'])

    def _log(self, model: Callable[[Tensor], Any], samples: Sequence[Sample], runs: dict[str, Run]) -> BranchLog:
        return BranchLog(model, self.adapter.channels, runs, {sample.name: _sides(sample.image) for sample in samples},
                         accepted=self._accepted)

    def _inputs(self, log: BranchLog, samples: Sequence[Sample], add: Callable[[str, Tensor], tuple[Sample, Run] | None]) -> BranchInputs:
        adapter = self.adapter
        # The user's own sizes and pictures must stay within the ranges.
        own_sizes, batch = (self.section['verify'][option] for option in ('shapes', 'batch'))
        keep = [name for name, shape in log.shapes.items() if own_sizes is not None or name in (TRACED, SAME, WINDOWS)
                or (name in self.photographs and name != PHOTOGRAPH) or (batch is not None and shape[0] == int(batch))]
        dynamic = open_axes(self.section['inputs']['dynamic'] or (), self.rules)
        ranges = ranges_of([tuple(sample.image.shape) for sample in samples], dynamic)
        batch_size = next(iter(log.shapes.values()))[0]

        def scene(shape: tuple[int, int, int], seed: int) -> Tensor:
            return picture((shape[0], adapter.channels, *shape[1:]), 50 + seed, adapter).to(self.device)

        def plain(kind: str, shape: tuple[int, int, int]) -> Tensor:
            return plain_picture((batch_size, adapter.channels, *shape[1:]), kind, adapter).to(self.device)

        found_inputs = inputs_for_branches(log, ranges, self.rules.multiple_of, scene, plain, add, keep, self.runs.note, self.own_code)
        self.sites |= log.sites
        return found_inputs

    def _run_network(self, image: Tensor) -> None:
        inputs = self.adapter.network_inputs(image)
        raw, _ = self.adapter.run_with_evidence(*inputs)
        self.adapter.decide(raw, *inputs)

    def _run_test_step(self, image: Tensor) -> None:
        run_test_step_on(self.adapter, *self.adapter.network_inputs(image))


def _times_asked(run: Run, site: Site) -> int:
    """Return how often a condition was asked."""
    return sum(key[0] == site for key in run.conditions)


def _sides(image: Tensor) -> tuple[int, int, int]:
    """Return batch, height and width."""
    return int(image.shape[0]), int(image.shape[2]), int(image.shape[3])
