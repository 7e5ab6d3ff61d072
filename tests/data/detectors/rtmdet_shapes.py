"""Define RTMDet with few channels, trained on drawn discs, squares and bars. Sides must be multiples of 32."""
_base_ = 'mmdet::rtmdet/rtmdet_tiny_8xb32-300e_coco.py'
default_scope = 'mmdet'
model = dict(
    data_preprocessor=dict(batch_augments=None),
    backbone=dict(widen_factor=0.125, init_cfg=None, norm_cfg=dict(type='BN')),
    neck=dict(in_channels=[32, 64, 128], out_channels=32, norm_cfg=dict(type='BN')),
    bbox_head=dict(num_classes=3, in_channels=32, feat_channels=32, norm_cfg=dict(type='BN')))
test_pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(192, 128), keep_ratio=False),
                 dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))]
test_dataloader = dict(_delete_=True, dataset=dict(type='CocoDataset', metainfo=dict(classes=('disc', 'square', 'bar')),
                                                   pipeline=test_pipeline))
export = dict(inputs=dict(shape=(128, 192)))
