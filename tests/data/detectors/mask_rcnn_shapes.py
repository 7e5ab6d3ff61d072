"""Define Mask R-CNN with a narrow ResNet-18, trained on drawn discs, squares and bars."""
_base_ = 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'
default_scope = 'mmdet'
model = dict(
    backbone=dict(depth=18, base_channels=12, stem_channels=12, frozen_stages=-1, norm_eval=False, init_cfg=None),
    neck=dict(in_channels=[12, 24, 48, 96], out_channels=32),
    rpn_head=dict(in_channels=32, feat_channels=32, anchor_generator=dict(scales=[4])),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=32), mask_roi_extractor=dict(out_channels=32),
        bbox_head=dict(in_channels=32, fc_out_channels=64, num_classes=3),
        mask_head=dict(in_channels=32, conv_out_channels=32, num_convs=2, num_classes=3)),
    train_cfg=dict(rpn_proposal=dict(nms_pre=200, max_per_img=100), rcnn=dict(sampler=dict(num=64))),
    test_cfg=dict(rpn=dict(nms_pre=200, max_per_img=100), rcnn=dict(max_per_img=50)))
test_pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(192, 128), keep_ratio=False),
                 dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))]
test_dataloader = dict(_delete_=True, dataset=dict(type='CocoDataset', metainfo=dict(classes=('disc', 'square', 'bar')),
                                                   pipeline=test_pipeline))
export = dict(inputs=dict(shape=(128, 192)))
