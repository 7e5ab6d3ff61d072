"""Test the pages: their command blocks run, their links lead somewhere, and they name what exists."""
from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mmexport.cli.main import COMMANDS
from tests.tools.test_tools import ENV

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *(ROOT / 'docs').glob('*.md')])
RUN = re.compile(r'<!-- run -->\n```\n(.*?)```', re.DOTALL)


def runnable() -> list[str]:
    """Return blocks of commands behind ``<!-- run -->``."""
    return [block for page in PAGES for block in RUN.findall(page.read_text())]


def test_there_are_blocks_to_run() -> None:
    assert len(runnable()) >= 1


@pytest.mark.parametrize('block', runnable())
def test_the_commands_of_a_page_run(block: str, tmp_path: Path) -> None:
    """In an empty folder with the repository's configs, as a reader types them."""
    (tmp_path / 'configs').symlink_to(ROOT / 'configs')
    env = {**ENV, 'PATH': f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}'}
    for line in block.strip().splitlines():
        done = subprocess.run(shlex.split(line), cwd=tmp_path, capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 0, f'{line}\n{done.stdout}{done.stderr}'


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r'\]\(([^)\s]+)\)', page.read_text()):
        if not target.startswith('http'):
            file, _, anchor = target.partition('#')
            place = (page.parent / file).resolve() if file else page
            assert place.exists(), f'{page.name}: {target}'
            if anchor:
                titles = re.findall(r'^#+ (.*)$', place.read_text(), re.MULTILINE)
                assert anchor in {re.sub(r'[^a-z0-9 -]', '', title.lower()).replace(' ', '-') for title in titles}, target


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / 'README.md').read_text()
    assert [name for name in COMMANDS if f'mmexport {name}' not in text and name != 'pytorch2libtorch'] == []


def test_every_package_is_in_the_map() -> None:
    text = (ROOT / 'docs' / 'development.md').read_text()
    packages = [path.name for path in (ROOT / 'mmexport').iterdir() if (path / '__init__.py').is_file()]
    assert [name for name in packages if f'| `{name}/` |' not in text] == []


def test_tables_of_versions_are_those_of_the_results() -> None:
    sys.path.insert(0, str(ROOT / 'benchmarks'))
    try:
        from matrix_table import RESULTS, summary, table
    finally:
        sys.path.remove(str(ROOT / 'benchmarks'))
    environments = json.loads(RESULTS.read_text())['rows']
    for page in ('README.md', 'docs/status.md'):
        assert '\n'.join(table(environments)) in (ROOT / page).read_text()
    tried = json.loads((ROOT / 'mmexport' / 'compat' / 'tried.json').read_text())
    assert tried == json.loads(json.dumps([summary(row) for row in environments if row['rows'] and not row['packages']]))


TRAINED = ROOT / 'tests' / 'data' / 'trained' / 'nuclei_unet'
MADE = 'work_dirs/nuclei_unet/torchscript'
# What a reader puts in the place of the words of a page.
PLACES = {**dict.fromkeys(('CONFIG', 'my_config.py', 'configs/mask2former_r50.py'), f'{TRAINED}.py'),
          **dict.fromkeys(('CHECKPOINT', 'CKPT', '[CKPT]', 'my_checkpoint.pth', '[my_checkpoint.pth]', 'ckpt.pth'), f'{TRAINED}.pth'),
          **dict.fromkeys(('MODEL.pt', 'model.pt'), f'{MADE}/model.pt'), **dict.fromkeys(('FOLDER', 'WORK_DIR/torchscript'), MADE),
          # Of its own: other pages add formats to that of `project` that are not checked without --trust.
          'WORK_DIR': 'work_dirs/one_format',
          'OUT': 'seeded.pth', 'OUT.pt': 'fixed.pt',
          # The model's own sizes.
          '512': '128'}
COMMAND = re.compile(r'(?:^(?:    )?|`)((?:mmexport (?:'
                     + '|'.join(COMMANDS) + r')|python tools/\w+\.py)\b [^`\n]*)', re.MULTILINE)
# It takes hours; tests/sweep has its own.
NOT_HERE = 'mmexport sweep'


@pytest.fixture(scope='module')
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a reader's folder: configs, pictures, and an export."""
    folder = tmp_path_factory.mktemp('project')
    for name in ('configs', 'tools'):
        (folder / name).symlink_to(ROOT / name)
    (folder / 'pictures').mkdir()
    (folder / 'pictures' / 'chelsea.png').symlink_to(ROOT / 'mmexport' / 'inputs' / 'chelsea.png')
    typed(f'mmexport export {TRAINED}.py {TRAINED}.pth --quiet', folder)
    shutil.copytree(folder / MADE, folder / PLACES['WORK_DIR'] / 'torchscript')
    return folder


def typed(line: str, folder: Path) -> None:
    words = [PLACES.get(word, word) for word in shlex.split(line.partition('   #')[0])]
    words = [sys.executable, *words[1:]] if words[0] == 'python' else words
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False,
                          env={**ENV, 'PATH': f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}'})
    assert done.returncode == 0, f'{" ".join(words)}\n{done.stdout}{done.stderr}'


@pytest.mark.slow
@pytest.mark.parametrize('page', ['README', 'docs/quickstart', 'docs/devices', 'docs/diagnosis', 'docs/formats', 'docs/verification'])
def test_the_commands_of_each_page_run(page: str, project: Path) -> None:
    """On a trained model in the place of CONFIG and CHECKPOINT. What only installs is run by `make demo` and tests/tools/test_mim.py."""
    others = ''.join(runnable())
    lines = [line for line in COMMAND.findall((ROOT / f'{page}.md').read_text())
             if not line.startswith(NOT_HERE) and '...' not in line and line not in others]
    assert lines
    for line in lines:
        typed(line, project)


def test_the_first_screen_of_the_readme_has_thirty_lines() -> None:
    first, _, _ = (ROOT / 'README.md').read_text().partition('\n## ')
    assert len(first.strip().splitlines()) <= 30


def test_the_commands_of_all_pages_have_the_options_that_exist() -> None:
    """Each command line of the pages is parsed, and not run; other tests run those of the first screens."""
    from click.testing import CliRunner

    from mmexport.cli.main import commands
    command = re.compile(r'(?:^ *|`|\$ )(?:python tools/(?=\w+\.py)|mmexport )(\w+)(?:\.py)?((?: [^`\n]*)?)', re.MULTILINE)
    lines = []
    for page in [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *sorted((ROOT / 'docs').glob('*.md'))]:
        for name, rest in command.findall(page.read_text()):
            if name in COMMANDS:
                lines.append((page.name, name, rest.partition('   #')[0]))
    assert len(lines) > 20
    for page, name, rest in lines:
        words = [word for word in shlex.split(rest.replace('[', '').replace(']', '')) if word != '...']
        for word in words:
            if word.startswith('--'):
                shown = CliRunner().invoke(commands, [name, '--help']).output
                assert re.search(rf'{re.escape(word.partition("=")[0])}\b', shown), f'{page}: mmexport {name} has no option {word}'


def python_blocks() -> list[tuple[str, str]]:
    return [(page.name, block) for page in PAGES for block in re.findall(r'```python\n(.*?)```', page.read_text(), re.S)]


# What a page leaves to the reader: a session of ONNX Runtime and data samples (tests/adapters/detection/test_results.py has them), or a
# file and its model (tests/adapters/detection/test_page.py).
UNFINISHED = ('session.run', 'predict_by_feat')


@pytest.mark.parametrize(('page', 'block'), [pair for pair in python_blocks() if not any(word in pair[1] for word in UNFINISHED)])
def test_a_python_block_of_a_page_runs(page: str, block: str, project: Path) -> None:
    for name in ('configs/fcn.py', 'fcn.pth'):
        block = block.replace(f"'{name}'", repr(f"{TRAINED}{Path(name).suffix}"))
    done = subprocess.run([sys.executable, '-c', block], cwd=project, capture_output=True, text=True, env=ENV, check=False)
    assert done.returncode == 0, f'{page}\n{block}\n{done.stderr}'
