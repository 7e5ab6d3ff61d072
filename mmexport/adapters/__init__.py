"""Wrap models for export: one adapter for each task, from an image to a fixed tuple of named tensors."""
from .base import Adapter, OutputSpec, build_adapter
from .mask_classification import MaskClassification
from .open_vocabulary import OpenVocabulary
from .parts import Backbone, BackboneNeck
from .segmentation import Segmentation
from .semantic_masks import SemanticMasks

__all__ = ['Adapter', 'Backbone', 'BackboneNeck', 'MaskClassification', 'OpenVocabulary', 'OutputSpec', 'Segmentation', 'SemanticMasks',
           'build_adapter']
