"""Run this folder as a program under a name of its own. No ``mmexport`` is imported then."""
import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def _as_package() -> None:
    # Python puts this folder first on sys.path, where its file names would hide other modules.
    sys.path[:] = [entry for entry in sys.path if Path(entry or '.').resolve() != HERE]
    spec = importlib.util.spec_from_file_location('checker', HERE / '__init__.py')
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules['checker'] = module
    spec.loader.exec_module(module)


if __name__ == '__main__':
    _as_package()
    if sys.argv[1:2] == ['--wait-for']:
        from checker.waiting import wait_and_check  # type: ignore[import-not-found]
        sys.exit(wait_and_check(*sys.argv[2:]))
    from checker.options import parse  # type: ignore[import-not-found]
    parse()
    if importlib.util.find_spec('torch') is None or importlib.util.find_spec('numpy') is None:
        print('torch or numpy is not installed, and a file is checked with both: pip install torch numpy', file=sys.stderr)
        from checker.exit_codes import ENVIRONMENT  # type: ignore[import-not-found]
        sys.exit(ENVIRONMENT)
    from checker.main import main  # type: ignore[import-not-found]
    sys.exit(main())
