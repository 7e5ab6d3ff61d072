"""Check a lowered file again, from its folder alone: python tools/verify.py DIR. Needs torch and numpy, not mmexport."""
import runpy
import sys
from pathlib import Path

if __name__ == '__main__':
    # In a checkout the checker lies in mmexport/checker; in a wheel this file lies in mmexport/.mim/tools.
    here = Path(__file__).resolve().parent
    checker = next(folder for folder in (here.parent / 'mmexport' / 'checker', here.parents[1] / 'checker') if folder.is_dir())
    sys.path[0] = str(checker)
    runpy.run_path(str(checker / '__main__.py'), run_name='__main__')
