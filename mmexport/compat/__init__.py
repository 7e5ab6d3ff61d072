"""Work around upstream defects, one small file each, without changing an installed file."""
from .mmcv_ext import provide_mmcv_ext
from .packages import check_packages
from .torchvision_ext import provide_torchvision_ops

__all__ = ['check_packages', 'provide_mmcv_ext', 'provide_torchvision_ops']
