"""Change norms of a config that cannot be built in one process."""
from __future__ import annotations

from typing import Any

# mmcv's own asks for the process group while it is built, torch's does not: ``mmengine.model.revert_sync_batchnorm`` takes both.
OF_MMCV, OF_TORCH = ('MMSyncBN', 'mmcv.ops.SyncBatchNorm', 'mmcv.ops.sync_bn.SyncBatchNorm'), 'SyncBN'
# What torch's does not take.
OPTIONS = ('group', 'stats_mode')


def without_process_group(node: Any) -> Any:
    """Return a part of a config with torch's synchronised BatchNorm instead of mmcv's.

    It is changed in place. Weights have the same names.
    """
    if isinstance(node, dict):
        kind = node.get('type')
        name = f'{kind.__module__}.{kind.__name__}' if isinstance(kind, type) else str(kind)
        if name in OF_MMCV or name.rsplit('.', 1)[-1] == OF_MMCV[0]:
            node['type'] = OF_TORCH
            for option in OPTIONS:
                node.pop(option, None)
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, (list, tuple)) else ():
        without_process_group(value)
    return node
