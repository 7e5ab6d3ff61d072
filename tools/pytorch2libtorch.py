"""Export by the options of mmseg 0.x: CONFIG --checkpoint FILE --shape H W --output-file FILE --verify --show."""
from mmexport.cli import main

if __name__ == '__main__':
    main('pytorch2libtorch')
