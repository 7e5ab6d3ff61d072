"""Wrap models for export: a package for each task, from an image to a fixed tuple of named tensors.

Importing this package imports every task, which registers its adapters. The first one that knows a model is taken, or a subclass of it that
does.
"""
from importlib import import_module
from pkgutil import walk_packages

for _module in walk_packages(__path__, f'{__name__}.'):
    import_module(_module.name)

from .base import Adapter  # noqa: E402
from .build import adapter_for, build_adapter, check_task, task_packages  # noqa: E402
from .panoptic.mask_classification import MaskClassification  # noqa: E402
from .parts import Backbone, BackboneNeck  # noqa: E402
from .semantic.open_vocabulary import OpenVocabulary  # noqa: E402
from .semantic.segmentation import Segmentation  # noqa: E402
from .semantic.semantic_masks import SemanticMasks  # noqa: E402
from .specs import OutputSpec  # noqa: E402

__all__ = ['Adapter', 'Backbone', 'BackboneNeck', 'MaskClassification', 'OpenVocabulary', 'OutputSpec', 'Segmentation', 'SemanticMasks',
           'adapter_for', 'build_adapter', 'check_task', 'task_packages']
