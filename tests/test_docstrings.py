"""Test that the first sentence of a public docstring is an imperative verb and its object."""
from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERBS = set('''
Add Apply Ask Assign Audit Be Brighten Bring Build Cache Calibrate Call Capture Change Check Choose Collect Compare Compile Complete
Compose Compute Convert Convolve Copy Count Create Cut Decide Declare Decompose Define Descend Describe Detect Diagnose Disable Dispatch
Distinguish Do Double Draw Drop End Enlarge Evaluate Exempt Explain Export Express Fill Filter Find Fix Format Give Group Hand Hide Hold
Import Initialise Insert Isolate Join Judge Keep Leave Let Limit List Load Lower Make Map Mark Mask Match Measure Mix Move Name
Normalise Note Open Pad Pair Parse Pass Pool Prepare Print Provide Raise Read Record Rectify Redraw Refuse Register Remember Remove
Rename Render Renumber Repair Repeat Replace Report Resize Restrict Return Rewrite Round Run Sample Save Scale Seed Set Share Show
Signal Solve Sort Stand Start Store Summarize Suppress Swap Sweep Tag Take Tell Test Time Trace Track Train Try Turn Verify Wait Walk Warn
Work Wrap Write Yield
'''.split())


PACKAGE = ('mmexport', 'patches', 'tools')


def public_docstrings(folders: tuple[str, ...] = PACKAGE) -> Iterator[tuple[str, str]]:
    """Yield place and first line of the docstring of every module, public class and public function."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob('*.py')):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                    name = getattr(node, 'name', path.stem)
                    docstring = ast.get_docstring(node)
                    # What a test function shows is its name; its docstring is a remark.
                    test = isinstance(node, ast.FunctionDef) and name.startswith('test_')
                    if docstring and not name.startswith('_') and not test:
                        yield f'{path.relative_to(ROOT)}: {name}', docstring.splitlines()[0]


def test_the_first_word_is_an_imperative_verb() -> None:
    actual = list(public_docstrings((*PACKAGE, 'benchmarks', 'tests')))
    assert len(actual) > 900
    assert [f'{place}: {line}' for place, line in actual if line.split()[0].rstrip(',.:;') not in VERBS] == []


def test_first_sentences_are_short() -> None:
    """Count up to the first stop, colon or semicolon, 15 words at most; shapes in parentheses do not count."""
    sentences = {place: re.split(r'(?<=[.:;])\s|$', line)[0] for place, line in public_docstrings()}
    assert {place: words for place, words in sentences.items() if len(re.sub(r'\([^)]*\)', '', words).split()) > 15} == {}


def test_every_public_module_and_class_says_what_it_does() -> None:
    missing = []
    for path in sorted((ROOT / 'mmexport').rglob('*.py')):
        tree = ast.parse(path.read_text())
        if tree.body and not ast.get_docstring(tree):
            missing.append(str(path.relative_to(ROOT)))
        missing += [f'{path.relative_to(ROOT)}: {node.name}' for node in tree.body
                    if isinstance(node, ast.ClassDef) and not node.name.startswith('_') and not ast.get_docstring(node)]
    assert missing == []
