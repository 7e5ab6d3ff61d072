_base_ = 'mmseg::point_rend/pointrend_r50_4xb2-80k_cityscapes-512x1024.py'
