"""Wrap models for export: a package for each task, from an image to a fixed tuple of named tensors."""
from .base import Adapter, OutputSpec
from .build import adapter_for, build_adapter
from .panoptic.mask_classification import MaskClassification
from .parts import Backbone, BackboneNeck
from .semantic.open_vocabulary import OpenVocabulary
from .semantic.segmentation import Segmentation
from .semantic.semantic_masks import SemanticMasks

__all__ = ['Adapter', 'Backbone', 'BackboneNeck', 'MaskClassification', 'OpenVocabulary', 'OutputSpec', 'Segmentation', 'SemanticMasks',
           'adapter_for', 'build_adapter']
