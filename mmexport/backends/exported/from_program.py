"""Share code among the formats that start from an exported program."""
from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ...adapters import Adapter
from ...adapters.specs import InputSpec
from ...artifact import Artifact
from ...compat.packages import installed_version
from ...errors import LoweringError, causes, last_line
from ...ops.op import EXPORTED, forms_for, registered
from ..base import Backend, Run, name_of
from ..building import build_backend
from ..examples import generic, input_specs_of, open_sizes
from ..raw_outputs import raw_folder, raw_manifest, with_raw
from .cutting import cut_program
from .probing import choose_form
from .program import exported_program, part_program, silenced, unavailable, warned
from .valid_sizes import conditions_of, narrowed, valid_ranges

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# Attributes of a backend that change no file.
NO_OPTIONS = frozenset({'_other_forms', 'why', 'repro', 'repro_intermediate'})


class ProgramBackend(Backend):
    """Convert an exported program, by a format's `convert` and `write`."""

    file: ClassVar[str]
    # Whether `cut` can take outputs off what `convert` made. Else the program is cut and converted, and raw outputs are compared of the
    # program, in the format `raw_format`: machine code cannot be cut.
    cuts: ClassVar[bool] = False
    raw_format: ClassVar[str] = 'torch_export'

    def convert(self, program: ExportedProgram, folder: Path, names: Sequence[str], inputs: Sequence[InputSpec]) -> Any:
        """Convert `program` with the format's own library; it may raise anything.

        Args:
            folder: takes temporary files.
            names: of the outputs.
        """
        raise NotImplementedError

    def write(self, converted: Any, folder: Path, names: Sequence[str], manifest: dict[str, Any]) -> dict[str, Any]:
        """Write `file` from what `convert` made, and return the manifest with this format's facts; `names` are of the outputs."""
        raise NotImplementedError

    def copied(self, converted: Any) -> Any:
        """Return a copy of what `convert` made, if `write` or `cut` changes it."""
        return converted

    def cut(self, converted: Any, count: int) -> Any:
        """Return what `convert` made, with its first `count` outputs."""
        raise NotImplementedError

    def lowered_example(self, example: Tensor, dynamic: Sequence[str], multiple: int) -> Tensor:
        return generic(example, dynamic, multiple)

    def unavailable(self) -> str | None:
        return unavailable()

    def lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any]) -> Artifact:
        forms, tried = {}, {}
        for op in registered():
            if op.probe is not None and op.name in self.forms and op.occurs_in(adapter):
                forms[op.name], tried[op.name] = choose_form(self, example.device, op)
        facts = dict(forms=forms, probe=tried) if forms else {}
        return self.with_forms(forms)._lower(adapter, example, folder, manifest, **facts)

    @property
    def forms(self) -> dict[str, str]:
        """Return by op the form that this format takes, see `mmexport.ops.op`."""
        return {**forms_for(EXPORTED), **forms_for(self.name), **getattr(self, '_other_forms', {})}

    def with_forms(self, forms: Mapping[str, str]) -> ProgramBackend:
        """Return this backend with other forms, by op."""
        changed = copy.copy(self)
        changed._other_forms = {**getattr(self, '_other_forms', {}), **forms}  # type: ignore[attr-defined]
        return changed

    def full_precision(self) -> ProgramBackend:
        """Return this backend in full precision and without simplification, for probes."""
        changed = copy.copy(self)
        for option, plain in (('precision', 'fp32'), ('simplify', False)):
            if hasattr(changed, option):
                setattr(changed, option, plain)
        return changed

    def cache_key(self) -> str:
        """Return the cache key of the results of probes: the backend with its options and package versions."""
        plain = self.full_precision()
        options = ' '.join(f'{name}={value}' for name, value in sorted(vars(plain).items()) if name not in NO_OPTIONS)
        return ' '.join(filter(None, (self.name, options, *(f'{name} {installed_version(name)}' for name in self.packages))))

    def _lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any], **facts: Any) -> Artifact:
        """Lower with the present `forms`; `facts` go into the manifest too."""
        dynamic = open_sizes(manifest['inputs'])
        with with_raw(adapter) as raw:
            program = exported_program(adapter, example, dynamic, **self.forms)
        specs = input_specs_of(adapter)
        ranges = valid_ranges(program, example, dynamic, specs)
        signed = self.signed(manifest, dict(torch=torch.__version__, strict=False, ranges=ranges, tracer_warnings=warned(program),
                                            **facts))
        conditions = conditions_of(program, specs)
        signed['inputs'] = [narrowed(spec, ranges, conditions if not number else []) for number, spec in enumerate(manifest['inputs'])]
        names = [spec.name for spec in adapter.specs]
        folder.mkdir(parents=True, exist_ok=True)
        if not raw:
            return self._written(self._converted(adapter, program, folder, names, specs), folder, names, signed, adapter)
        both = [*names, *(str(spec['name']) for spec in raw)]
        if not self.cuts:
            apart = raw_folder(folder)
            apart.mkdir(parents=True, exist_ok=True)
            whole: Any = build_backend(self.raw_format)
            whole._written(program, apart, both, {**raw_manifest(manifest, raw), 'backend': whole.name, whole.name: {}}, adapter)
            graph = self._converted(adapter, cut_program(program, len(names)), folder, names, specs)
            return self._written(graph, folder, names, signed, adapter)
        graph = self._converted(adapter, program, folder, both, specs)
        return self._written_with_raw(graph, folder, names, signed, raw, adapter)

    def _written_with_raw(self, graph: Any, folder: Path, names: Sequence[str], signed: dict[str, Any], raw: Sequence[Any],
                          adapter: Adapter) -> Artifact:
        """Write the graph twice: with its `raw` outputs for the check, and cut to `names` for the user."""
        apart, both = raw_folder(folder), [*names, *(str(spec['name']) for spec in raw)]
        apart.mkdir(parents=True, exist_ok=True)
        self._written(self.copied(graph), apart, both, raw_manifest(signed, raw), adapter)
        return self._written(self.cut(graph, len(names)), folder, names, signed, adapter)

    def _written(self, graph: Any, folder: Path, names: Sequence[str], manifest: dict[str, Any], adapter: Adapter) -> Artifact:
        try:
            return self.finished(folder / self.file, self.write(graph, folder, names, copy.deepcopy(manifest)))
        except LoweringError:
            raise
        except Exception as exc:
            raise LoweringError(f'{self.name} cannot write {name_of(adapter)}: {type(exc).__name__}: {last_line(exc)}') from exc

    def attempt(self, part: nn.Module, inputs: tuple[Tensor, ...], moving: Sequence[Sequence[int]]) -> Run:
        program = part_program(part, inputs, moving, **self.forms)
        answers = len(program.graph_signature.user_outputs)
        with TemporaryDirectory() as folder:
            names = [f'answer_{number}' for number in range(answers)]
            self._converted(part, program, Path(folder), names, [InputSpec(f'input_{number}', ()) for number in range(len(inputs))])
        return program.module()  # type: ignore[return-value]

    def intermediate(self, adapter: Adapter, example: Tensor, dynamic: Sequence[str]) -> tuple[str, Run]:
        return 'exported', exported_program(adapter, example, dynamic, **self.forms).module()  # type: ignore[return-value]

    def _converted(self, module: nn.Module, program: ExportedProgram, folder: Path, names: Sequence[str],
                   inputs: Sequence[InputSpec]) -> Any:
        try:
            with torch.no_grad(), silenced():
                return self.convert(program, folder, names, inputs)
        except LoweringError:
            raise
        except Exception as exc:
            # Converters wrap the reason in reports of many lines.
            reason = causes(exc)[-1]
            raise LoweringError(f'{self.name} cannot hold {name_of(module)}: {type(reason).__name__}: {last_line(reason)}',
                                stack=stack_of(program, exc)) from exc


def stack_of(program: ExportedProgram, exc: BaseException) -> str | None:
    """Return the Python stack of the node that a converter's error names. Without one, that of the first node of its operator."""
    message = ' '.join(map(str, causes(exc)))
    decomposed = set(re.findall(r"op='\w+\.(\w+)'", message))
    for node in program.graph.nodes:
        operator = node.op == 'call_function' and (str(node.target) in message or _core(node.target) in decomposed)
        named = operator or f'%{node.name} ' in message
        if named and node.meta.get('stack_trace'):
            return str(node.meta['stack_trace'])
    return None


def _core(target: Any) -> str:
    """Shorten ``aten.special_bessel_j0.default`` to ``bessel_j0``, its name after decomposition."""
    return str(target).split('.')[1].removeprefix('special_') if '.' in str(target) else str(target)
