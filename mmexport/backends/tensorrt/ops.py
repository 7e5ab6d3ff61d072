"""List the operators that Torch-TensorRT converts, to check a program without it.

Read from ``py/torch_tensorrt/dynamo`` of pytorch/TensorRT: ``conversion/aten_ops_converters.py`` at 8f1076616ffe and
``lowering/_decomposition_groups.py`` at 03f5f2d98b5f. An operator without a
converter is no failure: it stays in PyTorch between two engines, and each such place costs a synchronisation and a copy.
"""
from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# Packets of ``torch.ops.aten``.
CONVERTED = frozenset('''
    _adaptive_avg_pool2d _adaptive_avg_pool3d _cdist_forward _embedding_bag _native_batch_norm_legit_no_training _pad_circular
    _pdist_forward _prelu_kernel _softmax _to_copy abs acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d add addmm
    amax amin any arange argmax argmin as_strided asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d batch_norm bitwise_and
    bitwise_not bitwise_or bitwise_xor bmm cat ceil clamp clip clone constant_pad_nd convolution copy cos cosh cumsum diagonal div dot elu
    embedding embedding_bag eq erf exp expand expm1 flip floor floor_divide fmod full gather ge gelu grid_sampler grid_sampler_2d
    group_norm gt hardsigmoid index index_put index_select isinf isnan layer_norm le leaky_relu linear log log10 log1p log2 logical_and
    logical_not logical_or logical_xor lt matmul max max_pool1d max_pool2d max_pool3d maximum mean min minimum mm mul mv native_batch_norm
    native_dropout native_group_norm native_layer_norm ne neg pad permute pixel_shuffle pixel_unshuffle pow prod reciprocal
    reflection_pad1d reflection_pad2d reflection_pad3d relu remainder replication_pad1d replication_pad2d replication_pad3d reshape resize_
    roll round rsqrt scalar_tensor scatter select sigmoid sign sin sinh slice softplus sort split split_with_sizes sqrt squeeze sub sum
    sym_size tan tanh tile topk trunc unsqueeze upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
    upsample_nearest2d upsample_nearest3d upsample_trilinear3d view where'''.split())
SOURCE = 'pytorch/TensorRT 8f1076616ffe'
# What the library decomposes beyond PyTorch's core set; checks of sizes, which it takes out; the attention that it lowers to its own.
LOWERED = frozenset(('clamp_min', 'clamp_max', 'linalg_vector_norm', 'repeat', 'var_mean', '_assert_scalar', '_assert_tensor_metadata',
                     'sym_constrain_range_for_size', 'alias', 'detach', 'lift_fresh_copy', 'scaled_dot_product_attention'))
_KNOWN = CONVERTED | LOWERED


def lacking(program: ExportedProgram) -> dict[str, int]:
    """Return the operators of `program` without converter or core decomposition, with counts.

    That each case of a converted operator is converted (a stride, a dtype) is more than this knows.
    """
    from torch._decomp import core_aten_decompositions
    decomposed = core_aten_decompositions()
    found: Counter[str] = Counter()
    for node in program.graph.nodes:
        target = node.target
        if node.op != 'call_function' or not isinstance(target, torch._ops.OpOverload):
            continue
        known = target.namespace == 'aten' and {target.overloadpacket.__name__, target.overloadpacket.__name__.rstrip('_')} & _KNOWN
        if not known and target not in decomposed and not target._can_decompose():
            found[str(target)] += 1
    return dict(sorted(found.items()))
