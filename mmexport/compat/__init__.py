"""Work-arounds for upstream defects, one small file each; none of them changes an installed file."""
from .mmcv_ext import provide_mmcv_ext
from .packages import check_packages

__all__ = ['check_packages', 'provide_mmcv_ext']
