"""Find every tensor on the wrong device: python tools/audit.py CONFIG [CHECKPOINT], or MODEL.pt; no GPU is needed."""
from mmexport.cli import main

if __name__ == '__main__':
    main('audit')
