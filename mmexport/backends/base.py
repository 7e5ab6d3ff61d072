"""Define the base class of export backends: `lower()`, `load()` and `unavailable()`."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..adapters import Adapter
from ..artifact import Artifact
from ..checker.files import add_runner, load
from ..errors import ConfigError

Run = Callable[..., tuple[Tensor, ...]]
# The name of the manifest inside an archive of torch's: torch.jit.load(..., _extra_files={'manifest.json': ''}).
INSIDE = 'manifest.json'
# The trace of a part, in the source of a repro.
TRACED = 'torch.jit.trace(Part().eval(), inputs, check_trace=False)'


class Backend:
    """Lower an adapter to one file; `name` is the folder under the work dir and the word on the command line."""

    name: ClassVar[str]
    # The packages that a graph goes through after torch, the runtime first.
    packages: ClassVar[tuple[str, ...]] = ()
    # Source code for an upstream issue: what lowers a `Part`, and the form halfway, which can be run. `{exported}` is a program of it.
    repro: str = '{exported}\n'
    repro_intermediate: str = '{exported}.module()'
    # Whether the format is made by tracing one run; a tracer warns where it turns a tensor into a number.
    traces: ClassVar[bool] = False

    def lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any]) -> Artifact:
        """Write the file into `folder`; `adapter` is patched and in eval mode.

        Args:
            example: the traced input, (N, C, H, W).
            manifest: the facts known before lowering; the backend adds its own.

        Raises:
            LoweringError: the format cannot hold the model.
        """
        raise NotImplementedError

    def signed(self, manifest: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
        """Add this backend's name and its facts to the manifest."""
        return {**manifest, 'backend': self.name, self.name: facts}

    def finished(self, file: Path, manifest: dict[str, Any]) -> Artifact:
        """Write the manifest beside the file and return both as an artifact."""
        facts = manifest.get(self.name, {})
        if 'summary' not in facts and (lines := self.summary(facts)):
            facts['summary'] = lines
        artifact = Artifact(self.name, file, manifest)
        artifact.write_manifest()
        return artifact

    def summary(self, facts: dict[str, Any]) -> list[str]:
        """Return the lines of the report that only this format has. `facts` are those of the manifest."""
        compiled = [f"compiled in {facts['compile_s']:.0f} s"] if 'compile_s' in facts else []
        return [*compiled, *(f"{op.replace('_', ' ')} by {form}, which the installed runtime gets right"
                             for op, form in facts.get('forms', {}).items())]

    def attempt(self, part: nn.Module, inputs: tuple[Tensor, ...], moving: Sequence[Sequence[int]]) -> Run:
        """Try to lower one module that takes and returns tensors; return its intermediate form.

        Args:
            moving: for each input the axes that change with the size or the batch of the picture, and must stay open.

        Raises:
            LoweringError: it cannot; the cause is chained.
        """
        raise NotImplementedError

    def intermediate(self, adapter: Adapter, example: Tensor, dynamic: Sequence[str]) -> tuple[str, Run]:
        """Return the form between model and file, to find the faulty step: its name, and a callable."""
        raise NotImplementedError

    def load(self, artifact: Artifact, device: str | torch.device) -> Run:
        """Load the file with the format's runner, without rules on its input."""
        add_runner(self.name, self.runner_file())
        return load(artifact.folder, {'backend': self.name, 'file': artifact.file.name}, torch.device(device))

    @classmethod
    def runner_file(cls) -> Path:
        """Return ``runner.py`` beside the module of the class, or of one that it extends.

        It loads and runs a file, and imports torch, numpy and its runtime only.

        Raises:
            ConfigError: there is none.
        """
        for base in cls.__mro__[:-1]:
            file = Path(inspect.getfile(base)).with_name('runner.py')
            if file.is_file():
                return file
        raise ConfigError(f'the backend {cls.name} has no runner.py beside {inspect.getfile(cls)}')

    @property
    def computes_in(self) -> str:
        """Return the precision by whose rules the file is judged: ``float32``, ``float16`` or ``bfloat16``."""
        return 'float32'

    def lowered_example(self, example: Tensor, dynamic: Sequence[str], multiple: int) -> Tensor:
        """Return an input of the shape that `lower` runs the model with, given `example`.

        Args:
            dynamic: the open axes.
            multiple: what the sides of an input are multiples of.
        """
        return example

    def unavailable(self) -> str | None:
        """Return what to install, or None."""
        return None


def name_of(module: nn.Module) -> str:
    """Return the name of the model's class, for an adapter that of the model inside."""
    return type(getattr(module, 'model', module)).__name__
