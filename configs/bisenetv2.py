_base_ = 'mmseg::bisenetv2/bisenetv2_fcn_4xb4-160k_cityscapes-1024x1024.py'
