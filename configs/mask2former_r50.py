_base_ = 'mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco-panoptic.py'

export = dict(inputs=dict(shape=(1, 3, 512, 512)))

# The photograph of --image at about the traced size; the config's own scale of 1333x800 would take most of a check's time.
test_dataloader = dict(dataset=dict(pipeline=[
    dict(type='LoadImageFromFile', backend_args=None),
    dict(type='Resize', scale=(512, 512), keep_ratio=True),
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')),
]))
