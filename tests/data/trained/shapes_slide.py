"""Define a SegFormer with few channels: 4 classes, and windows of 96x96 that slide over a larger picture."""
default_scope = 'mmseg'
crop_size = (96, 96)
norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(type='SegDataPreProcessor', mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True,
                           size=crop_size, pad_val=0, seg_pad_val=255),
    backbone=dict(type='MixVisionTransformer', in_channels=3, embed_dims=16, num_stages=4, num_layers=[1, 1, 1, 1],
                  num_heads=[1, 2, 4, 8], patch_sizes=[7, 3, 3, 3], sr_ratios=[8, 4, 2, 1], out_indices=(0, 1, 2, 3), mlp_ratio=2,
                  qkv_bias=True, drop_path_rate=0.0),
    decode_head=dict(type='SegformerHead', in_channels=[16, 32, 64, 128], in_index=[0, 1, 2, 3], channels=32, num_classes=4,
                     norm_cfg=norm_cfg, align_corners=False, dropout_ratio=0.0, loss_decode=dict(type='CrossEntropyLoss')),
    test_cfg=dict(mode='slide', crop_size=(96, 96), stride=(64, 64)))
test_pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(192, 128), keep_ratio=False), dict(type='PackSegInputs')]
test_dataloader = dict(dataset=dict(type='BaseSegDataset', metainfo=dict(classes=('ground', 'disc', 'square', 'bar')),
                                    pipeline=test_pipeline))
