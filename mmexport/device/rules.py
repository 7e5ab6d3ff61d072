"""Define PyTorch's device rules: which operators take tensors of two devices, and where results are.

Source: TensorIterator (0-dimensional CPU tensors may meet CUDA ones), aten/src/ATen/native/TensorAdvancedIndexing.cpp (CPU indices may
index CUDA tensors, not the other way round), ``copy_`` (moves between devices).
"""
from __future__ import annotations

# Answer with a tensor on the default device when no device is named, although an argument may be a tensor (arange(count)).
FACTORIES = frozenset({'arange', 'range', 'zeros', 'ones', 'empty', 'full', 'rand', 'randn', 'randint', 'randperm', 'linspace',
                       'logspace', 'eye', 'scalar_tensor', 'tril_indices', 'triu_indices', 'empty_strided'})
FROM_DATA = frozenset({'tensor', 'as_tensor', 'asarray'})
FROM_NUMPY = frozenset({'from_numpy', 'frombuffer'})

# Only the shape or type of the second tensor is read.
METADATA_ONLY = frozenset({'view_as', 'expand_as', 'reshape_as', 'is_same_size', 'type_as', 'resize_as_', 'result_type', 'can_cast',
                           'broadcast_tensors', '__get__', 'size', 'dim', 'has_names', 'is_set_to', 'to'})
COPIES = frozenset({'copy_', '__set__', 'set_'})
INDEXING = frozenset({'__getitem__', 'index', 'index_put', 'index_put_', '_unsafe_index'})

# Not TensorIterator's: a 0-dimensional CPU tensor is refused here as any other.
REFUSE_SCALARS = frozenset({
    'cat', 'concat', 'concatenate', 'stack', 'hstack', 'vstack', 'dstack', 'column_stack', 'row_stack', 'einsum', 'gather', 'scatter',
    'scatter_', 'scatter_add', 'scatter_add_', 'index_select', 'index_add', 'index_add_', 'index_copy', 'index_copy_', 'index_fill',
    'take', 'take_along_dim', 'masked_select', 'embedding', 'embedding_bag', 'grid_sample', 'equal', 'searchsorted', 'bucketize',
    'cross', 'dot', 'cdist', 'meshgrid', 'block_diag', 'roi_align', 'scaled_dot_product_attention'})

HALF_NAMES = frozenset({'half', 'bfloat16'})
MOVES = frozenset({'to', 'cpu', 'cuda', 'type', 'type_as'})
NEEDS_CPU = frozenset({'numpy', '__array__'})


def in_place(name: str) -> bool:
    """Return whether an operator changes its first argument (``add_``, ``__iadd__``) and keeps its device."""
    return (name.endswith('_') and not name.endswith('__')) or name in ('__setitem__', '__set__') or (
        name.startswith('__i') and name.endswith('__') and name not in ('__invert__', '__index__', '__int__', '__init__'))
