"""Define a U-Net with few channels: 2 classes, of which the foreground covers under 2% of the pixels. Sides must be multiples of 8."""
default_scope = 'mmseg'
crop_size = (96, 96)
norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(type='SegDataPreProcessor', mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True,
                           size=crop_size, pad_val=0, seg_pad_val=255),
    backbone=dict(type='UNet', in_channels=3, base_channels=8, num_stages=4, strides=(1, 1, 1, 1), enc_num_convs=(2, 2, 2, 2),
                  dec_num_convs=(2, 2, 2), downsamples=(True, True, True), enc_dilations=(1, 1, 1, 1), dec_dilations=(1, 1, 1),
                  norm_cfg=norm_cfg, act_cfg=dict(type='ReLU'), upsample_cfg=dict(type='InterpConv'), norm_eval=False),
    decode_head=dict(type='FCNHead', in_channels=8, in_index=3, channels=8, num_convs=1, concat_input=False, dropout_ratio=0.0,
                     num_classes=2, norm_cfg=norm_cfg, align_corners=False,
                     loss_decode=[dict(type='CrossEntropyLoss', class_weight=[1.0, 15.0]), dict(type='DiceLoss', use_sigmoid=False)]),
    test_cfg=dict(mode='whole'))
test_pipeline = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(192, 128), keep_ratio=False), dict(type='PackSegInputs')]
test_dataloader = dict(dataset=dict(type='BaseSegDataset', metainfo=dict(classes=('background', 'nucleus')), pipeline=test_pipeline))
