"""Find why a format fails, to the module and the line: python tools/diagnose.py CONFIG CHECKPOINT --backend onnx."""
from mmexport.cli import main

if __name__ == '__main__':
    main('diagnose')
