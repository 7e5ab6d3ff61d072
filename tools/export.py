"""Export a model and check the file: python tools/export.py CONFIG CHECKPOINT --backend torchscript."""
from mmexport.cli import main

if __name__ == '__main__':
    main('export')
