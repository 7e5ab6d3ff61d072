"""Define a ResNet with few channels and one output channel: a sigmoid and a threshold other than one half."""
default_scope = 'mmseg'
crop_size = (96, 96)
norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(type='SegDataPreProcessor', mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True,
                           size=crop_size, pad_val=0, seg_pad_val=255),
    backbone=dict(type='ResNetV1c', depth=18, base_channels=8, stem_channels=8, num_stages=3, out_indices=(0, 1, 2), strides=(1, 2, 2),
                  dilations=(1, 1, 1), norm_cfg=norm_cfg, norm_eval=False, contract_dilation=True),
    decode_head=dict(type='FCNHead', in_channels=[8, 16, 32], in_index=[0, 1, 2], input_transform='resize_concat', channels=16, num_convs=2,
                     concat_input=False, dropout_ratio=0.0, num_classes=2, out_channels=1, threshold=0.4, norm_cfg=norm_cfg,
                     align_corners=False, loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=True)),
    test_cfg=dict(mode='whole'))
test_pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(192, 128), keep_ratio=False), dict(type='PackSegInputs')]
test_dataloader = dict(dataset=dict(type='BaseSegDataset', metainfo=dict(classes=('road', 'crack')), pipeline=test_pipeline))
