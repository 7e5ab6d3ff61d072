_base_ = 'mmseg::ocrnet/ocrnet_hr18_4xb2-40k_cityscapes-512x1024.py'
