"""Export many configs of a package: python tools/sweep.py --packages mmseg --out DIR."""
from mmexport.cli import main

if __name__ == '__main__':
    main('sweep')
