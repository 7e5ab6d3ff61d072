"""Define operations that patches share: one package an op, with its forms, what each format takes, and its probe.

No file has an ``mmexport::`` operator: every form is made of operators that the formats have. Importing this package registers the ops.
"""
from . import adaptive_pooling, deformable_attention, deformable_conv, mask_enlarging

__all__ = ['adaptive_pooling', 'deformable_attention', 'deformable_conv', 'mask_enlarging']
