"""Define patches of the package that the fixture `upstream` makes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmexport.patching import Patch


def patch_of(*names: str) -> Patch:
    class Doubling(Patch):
        """Double it."""

        targets = names
        upstream = 'fakemm 1'

        def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args: original(*args) * 2

    return Doubling()


class Constant(Patch):
    """Give one object for a target, as it is."""

    targets = ('fakemm.op',)
    upstream = 'mmcv 2.1.0, mmdet 3.2.0'

    def __init__(self, given: Any) -> None:
        self.given = given

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return self.given  # type: ignore[no-any-return]
