"""Check an exported folder again, without the model that it was made from."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from ..artifact import FAILED, MANIFEST
from ..errors import InputError, similar_path
from . import options as opt
from .completion import devices

CHECKER = Path(__file__).parents[1] / 'checker' / '__main__.py'


@opt.command('verify', ('mmexport verify work_dirs/mask2former_r50/torchscript', 'mmexport verify FOLDER --device cuda --trust'),
             short_help='Check an exported folder again.')
@opt.argument('folder')
@opt.option('--samples', group=opt.CHECK, metavar='FILE', help='Another samples file.')
@opt.option('--device', group=opt.CHECK, default='cpu', shell_complete=devices, help='Where it runs: cpu, cuda or cuda:N.')
@opt.option('--trust', group=opt.SAFETY, is_flag=True,
            help='Load a file that can run code of its author: torch.export, AOTInductor, TensorRT.')
@opt.option('--runner', group=opt.CHECK, metavar='FILE', help='The runner.py of a format that your project registers.')
@opt.option('--kind', group=opt.CHECK, several=True, metavar='NAME=FILE', help='The module of a kind of output that your project has.')
@opt.verbose
@opt.option('--out', group=opt.OUTPUT, metavar='FILE', help='Write the findings as JSON instead of a table.')
def command(args: SimpleNamespace) -> int:
    """Check the file in FOLDER against its samples, with torch and numpy alone. FOLDER holds one format, as WORK_DIR/torchscript, or is
    the work dir of an export: then each format in it is checked."""
    folder = Path(args.folder)
    if not folder.exists():
        raise InputError(f'{folder}: no such folder{similar_path(folder)}')
    folders = formats_in(folder) or [folder]
    if len(folders) > 1 and (args.samples or args.out):
        raise InputError(f'--samples and --out are for one file, and {folder} has {len(folders)}: name one of '
                         f'{", ".join(map(str, folders))}')
    codes = []
    for one in folders:
        if len(folders) > 1:
            print(f'{one}:', flush=True)
        codes.append(_check(one, args))
    return max(codes)


def formats_in(work_dir: Path) -> list[Path]:
    """Return the folders of formats in a work dir; none if it holds a file itself.

    What failed its check lies under ``failed/`` and is not among them.
    """
    if (work_dir / MANIFEST).exists():
        return []
    folders = sorted(path.parent for depth in ('*', '*/*') for path in work_dir.glob(f'{depth}/{MANIFEST}'))
    return [one for one in folders if not any(part == FAILED or part.startswith('.') for part in one.relative_to(work_dir).parts)]


def _check(folder: Path, args: SimpleNamespace) -> int:
    arguments = [str(folder), '--device', args.device, *(['--trust'] if args.trust else []), *(['--verbose'] if args.verbose else [])]
    for name, value in (('--samples', args.samples), ('--runner', args.runner), ('--out', args.out)):
        arguments += [name, value] if value else []
    arguments += ['--kind', *args.kind] if args.kind else []
    # In another process: the checker must run without mmexport imported.
    return subprocess.run([sys.executable, str(CHECKER), *arguments], check=False).returncode
