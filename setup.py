"""Packaging; also copies tools/ and configs/ into the wheel as mmexport/.mim, where ``mim run mmexport export`` looks."""
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
VERSION = next(line.split("'")[1] for line in (HERE / 'mmexport/__init__.py').read_text().splitlines()
               if line.startswith('__version__'))


class BuildWithMim(build_py):

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for folder in ('tools', 'configs'):
            target = Path(self.build_lib) / 'mmexport' / '.mim' / folder
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(HERE / folder, target, ignore=shutil.ignore_patterns('__pycache__', '*.pyc'))


SEG = ['mmsegmentation>=1.0,<1.3', 'ftfy', 'regex']
DET = ['mmdet>=3.0,<3.4']
# On a machine with a GPU: onnxruntime-gpu.
ONNX = ['onnx>=1.16', 'onnxruntime>=1.17', 'onnxscript>=0.7.2', 'onnxslim']
OPENVINO = ['openvino>=2026.1']
SWEEP = ['ray[default]>=2.9']

setup(
    name='mmexport',
    version=VERSION,
    description='Export OpenMMLab 2.x models, and check the files against the unpatched model',
    long_description=(HERE / 'README.md').read_text() if (HERE / 'README.md').exists() else '',
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    python_requires='>=3.10',
    packages=[*find_packages(include=['mmexport', 'mmexport.*']), 'mmexport.patches'],
    package_dir={'mmexport.patches': 'patches'},
    package_data={'mmexport.inputs': ['*.png'], 'mmexport.compat': ['*.json']},
    # mmcv is left out on purpose: mmcv and mmcv-lite overwrite each other; mmexport checks for one of them at start.
    # setuptools: mmengine imports pkg_resources, which 81 removed.
    install_requires=['torch>=2.1', 'numpy>=1.23', 'mmengine>=0.10,<1.0', 'click>=8.1', 'rich>=12', 'setuptools<81'],
    extras_require={
        'seg': SEG,
        'det': DET,
        'onnx': ONNX,
        'openvino': OPENVINO,
        'sweep': SWEEP,
        'dev': [*SEG, *DET, *ONNX, *OPENVINO, *SWEEP, 'pytest>=7', 'pytest-xdist', 'ruff', 'mypy', 'safetensors'],
    },
    entry_points={'console_scripts': ['mmexport=mmexport.cli:main']},
    cmdclass={'build_py': BuildWithMim},
    zip_safe=False,
)
