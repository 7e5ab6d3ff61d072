_base_ = 'mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco-panoptic.py'

export = dict(inputs=dict(shape=(1, 3, 512, 512)))
