"""Change norms of a config that cannot be built in one process."""
from __future__ import annotations

from typing import Any

# mmcv's own asks for the process group while it is built, torch's does not: ``mmengine.model.revert_sync_batchnorm`` takes both.
OF_MMCV, OF_TORCH = 'MMSyncBN', 'SyncBN'
# What torch's does not take.
OPTIONS = ('group', 'stats_mode')


def without_process_group(node: Any) -> None:
    """Name torch's synchronised BatchNorm instead of mmcv's in a part of a config, in place.

    Weights have the same names.
    """
    if isinstance(node, dict):
        if str(node.get('type')).rsplit('.', 1)[-1] == OF_MMCV:
            node['type'] = OF_TORCH
            for name in OPTIONS:
                node.pop(name, None)
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, (list, tuple)) else ():
        without_process_group(value)
