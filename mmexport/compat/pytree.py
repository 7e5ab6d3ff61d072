"""Walk nested lists, tuples and dicts. Only what torch 2.1 to 2.14 share of ``torch.utils._pytree`` is used.

torch 2.1 has no ``tree_leaves`` and no ``tree_structure``. Run with torch 2.1.2, 2.4.1 and 2.13.0.
"""
from __future__ import annotations

from typing import Any

from torch.utils._pytree import tree_flatten, tree_map, tree_map_only, tree_unflatten

__all__ = ['tree_flatten', 'tree_leaves', 'tree_map', 'tree_map_only', 'tree_structure', 'tree_unflatten']


def tree_leaves(tree: Any) -> list[Any]:
    """Return what `tree` holds, in order."""
    return tree_flatten(tree)[0]


def tree_structure(tree: Any) -> Any:
    """Return the containers of `tree`, without what they hold."""
    return tree_flatten(tree)[1]
