"""Write a checkpoint of seeded weights for demos and tests: python tools/make_checkpoint.py CONFIG OUT."""
from mmexport.cli import main

if __name__ == '__main__':
    main('checkpoint')
