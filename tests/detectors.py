"""Make small variants of mmdet's detectors: the classes of the installed package, few channels and classes."""
from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from torch import nn

from mmexport import Exporter
from mmexport.model.build import build_model
from mmexport.report.facts import Report
from mmexport.seeding import seed_model
from mmexport.verification.reference import Reference
from tests.shared_weights import seed_or_load
from tests.tiny import SHAPE, _divide, _explicit_defaults, read_once

CONFIGS = {
    'retinanet': 'retinanet/retinanet_r50_fpn_1x_coco.py',
    'fcos': 'fcos/fcos_r50-caffe_fpn_gn-head_1x_coco.py',
    'atss': 'atss/atss_r50_fpn_1x_coco.py',
    'gfl': 'gfl/gfl_r50_fpn_1x_coco.py',
    'rtmdet': 'rtmdet/rtmdet_tiny_8xb32-300e_coco.py',
    'yolox': 'yolox/yolox_tiny_8xb8-300e_coco.py',
    'fsaf': 'fsaf/fsaf_r50_fpn_1x_coco.py',
    'vfnet': 'vfnet/vfnet_r50_fpn_1x_coco.py',
    'freeanchor': 'free_anchor/freeanchor_r50_fpn_1x_coco.py',
    'ddod': 'ddod/ddod_r50_fpn_1x_coco.py',
    'autoassign': 'autoassign/autoassign_r50-caffe_fpn_1x_coco.py',
    'yolof': 'yolof/yolof_r50-c5_8xb8-1x_coco.py',
    'nasfcos': 'nas_fcos/nas-fcos_r50-caffe_fpn_nashead-gn-head_4xb4-1x_coco.py',
    'foveabox': 'foveabox/fovea_r50_fpn_4xb4-1x_coco.py',
    'reppoints': 'reppoints/reppoints-moment_r50_fpn_1x_coco.py',
    'tood': 'tood/tood_r50_fpn_1x_coco.py',
    'paa': 'paa/paa_r50_fpn_1x_coco.py',
    'centernet': 'centernet/centernet_r18-dcnv2_8xb16-crop512-140e_coco.py',
    'cornernet': 'cornernet/cornernet_hourglass104_8xb6-210e-mstest_coco.py',
    'yolov3': 'yolo/yolov3_mobilenetv2_8xb24-320-300e_coco.py',
    'nasfpn': 'nas_fpn/retinanet_r50_nasfpn_crop640-50e_coco.py',
    'rpn': 'rpn/rpn_r50_fpn_1x_coco.py',
    'dyhead': 'dyhead/atss_r50-caffe_fpn_dyhead_1x_coco.py',
    'ssdlite': 'ssd/ssdlite_mobilenetv2-scratch_8xb24-600e_coco.py',
}
QUERIES = {
    'detr': 'detr/detr_r50_8xb2-150e_coco.py',
    'conditional_detr': 'conditional_detr/conditional-detr_r50_8xb2-50e_coco.py',
    'dab_detr': 'dab_detr/dab-detr_r50_8xb2-50e_coco.py',
    'deformable_detr': 'deformable_detr/deformable-detr_r50_16xb2-50e_coco.py',
    'dino': 'dino/dino-4scale_r50_8xb2-12e_coco.py',
    'ddq': 'ddq/ddq-detr-4scale_r50_8xb2-12e_coco.py',
    'sparse_rcnn': 'sparse_rcnn/sparse-rcnn_r50_fpn_1x_coco.py',
    'queryinst': 'queryinst/queryinst_r50_fpn_1x_coco.py',
}
STAGES = {
    'faster_rcnn': 'faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py',
    'cascade_rcnn': 'cascade_rcnn/cascade-rcnn_r50_fpn_1x_coco.py',
    'libra_rcnn': 'libra_rcnn/libra-faster-rcnn_r50_fpn_1x_coco.py',
    'dynamic_rcnn': 'dynamic_rcnn/dynamic-rcnn_r50_fpn_1x_coco.py',
    'double_head': 'double_heads/dh-faster-rcnn_r50_fpn_1x_coco.py',
    'carafe': 'carafe/faster-rcnn_r50_fpn-carafe_1x_coco.py',
    'groie': 'groie/faste-rcnn_r50_fpn_groie_1x_coco.py',
    'soft_nms': 'faster_rcnn/faster-rcnn_r50_fpn_soft-nms_1x_coco.py',
    'mask_rcnn': 'mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py',
    'cascade_mask_rcnn': 'cascade_rcnn/cascade-mask-rcnn_r50_fpn_1x_coco.py',
    'ms_rcnn': 'ms_rcnn/ms-rcnn_r50-caffe_fpn_1x_coco.py',
    'htc': 'htc/htc_r50_fpn_1x_coco.py',
    'grid_rcnn': 'grid_rcnn/grid-rcnn_r50_fpn_gn-head_2x_coco.py',
    'point_rend': 'point_rend/point-rend_r50-caffe_fpn_ms-1x_coco.py',
    'detectors': 'detectors/detectors_cascade-rcnn_r50_1x_coco.py',
    # As wide as upstream's: the shared stage of its head knows one width.
    'tridentnet': 'tridentnet/tridentnet_r50-caffe_1x_coco.py',
    'dcn': 'dcn/faster-rcnn_r50-dconv-c3-c5_fpn_1x_coco.py',
}
MASKS = {
    'rtmdet_ins': 'rtmdet/rtmdet-ins_tiny_8xb32-300e_coco.py',
    'condinst': 'condinst/condinst_r50_fpn_ms-poly-90k_coco_instance.py',
    'boxinst': 'boxinst/boxinst_r50_fpn_ms-90k_coco.py',
}
# Boxes by fast NMS and masks of prototypes.
PROTOTYPES = {'yolact': 'yolact/yolact_r50_1xb8-55e_coco.py'}
LOCATIONS = {
    'solo': 'solo/solo_r50_fpn_1x_coco.py',
    'decoupled_solo': 'solo/decoupled-solo_r50_fpn_1x_coco.py',
    'solov2': 'solov2/solov2_r50_fpn_1x_coco.py',
}
ALL = {**CONFIGS, **QUERIES, **STAGES, **MASKS, **PROTOTYPES, **LOCATIONS}
# Their necks, or the heads of their masks, join maps of equal size only: sides are multiples of these.
MULTIPLES = {**dict.fromkeys(('rtmdet', 'yolov3', 'yolox', 'solov2', *MASKS), 32), 'nasfpn': 128}
CLASSES = 12
# NAS-FPN joins maps of multiples of 128. DDOD's last map must have three cells a side, or mmcv's compiled kernel refuses it.
SHAPES = {'nasfpn': (1, 3, 128, 256), 'ddod': (1, 3, 288, 320)}
OTHERS = {'nasfpn': (256, 128), 'ddod': (320, 288)}


def tiny_detector(name: str, **export: Any) -> Config:
    """Return the config of a detector, made small, with `export` as its export section."""
    cfg = read_once('mmdet::' + ALL[name])
    cfg.model.backbone.pop('init_cfg', None)
    _explicit_defaults(cfg.model.backbone)
    if name == 'detectors':
        for backbone in (cfg.model.backbone, cfg.model.neck.rfp_backbone):
            backbone.update(base_channels=16, stem_channels=16, pretrained=None)
        cfg.model.neck.update(aspp_out_channels=16)
        cfg.model.neck.rfp_backbone.rfp_inplanes = 64
    if cfg.model.backbone.type in ('ResNet', 'DetectoRS_ResNet'):
        # The layers of query decoders know one width only.
        _divide({} if name in QUERIES else {key: value for key, value in cfg.model.items() if key != 'backbone'}, 4)
        neck = cfg.model.neck[0] if isinstance(cfg.model.neck, list) else cfg.model.neck
        neck.in_channels = [width // 4 for width in (256, 512, 1024, 2048)][-len(neck.in_channels):] \
            if isinstance(neck.in_channels, list) else 512
    if name == 'nasfpn':
        cfg.model.neck.stack_times = 2
    if name == 'dyhead':
        cfg.model.neck[1].num_blocks = 2
    if name == 'cornernet':
        cfg.model.backbone.update(downsample_times=2, stage_channels=[32, 32, 48], stage_blocks=[1, 1, 1], feat_channel=32)
        cfg.model.bbox_head.in_channels = 32
    if name == 'centernet':
        cfg.model.neck.update(in_channels=128, num_deconv_filters=(64, 32, 16))
    if name in ('sparse_rcnn', 'queryinst'):
        roi_head = cfg.model.roi_head
        roi_head.update(num_stages=2, stage_loss_weights=[1, 1], bbox_head=roi_head.bbox_head[:2])
        if 'mask_head' in roi_head:
            roi_head.mask_head = roi_head.mask_head[:2]
            # mmdet itself takes as many rows as regions only.
            cfg.model.rpn_head.num_proposals = 40
        cfg.model.test_cfg.rcnn.max_per_img = 60
    elif name in QUERIES:
        # Two-stage decoders choose among the places of the picture.
        cfg.model.update(num_queries=100, test_cfg=dict(max_per_img=60))
    for part, layers in (('encoder', 1), ('decoder', 2)):
        if part in cfg.model:
            cfg.model[part].num_layers = layers
    heads = cfg.model.roi_head.bbox_head if 'roi_head' in cfg.model else cfg.model.get('bbox_head', cfg.model.get('mask_head', []))
    for head in heads if isinstance(heads, list) else [heads]:
        # Of few classes corners make crowds of boxes, each of which is lowered by many.
        head.num_classes = CLASSES if name != 'cornernet' else 40
        if head.type == 'DoubleConvFCBBoxHead':
            head.update(conv_out_channels=128, fc_out_channels=256, num_convs=2)
    if name in STAGES or name == 'rpn':
        cfg.model.test_cfg.rpn.update(nms_pre=200, max_per_img=100)
    if 'mask_head' in cfg.model.get('roi_head', {}):
        masks = cfg.model.roi_head.mask_head
        for head in masks if isinstance(masks, list) else [masks]:
            # A head that takes the features of the one before has as many channels as they.
            head.update(num_classes=CLASSES, num_convs=2, conv_out_channels=64 if head.type == 'HTCMaskHead' else 32)
            if head.type == 'CoarseMaskHead':
                head.fc_out_channels = 64
        cfg.model.test_cfg.rcnn.max_per_img = 40
    if name == 'grid_rcnn':
        # Groups of deconvolutions, one for each point.
        cfg.model.roi_head.grid_head.update(num_convs=2, in_channels=64, point_feat_channels=16)
    if name == 'point_rend':
        cfg.model.roi_head.point_head.num_classes = CLASSES
        cfg.model.test_cfg.rcnn.update(subdivision_steps=4, subdivision_num_points=14 * 14)
    if name == 'ms_rcnn':
        cfg.model.roi_head.mask_iou_head.update(num_classes=CLASSES, num_convs=2, conv_out_channels=32, fc_out_channels=128)
    if name in ('condinst', 'boxinst'):
        # As many as the head of boxes gives weights for, 593 in BoxInst.
        channels = 8 if name == 'condinst' else 16
        cfg.model.mask_head.feat_channels = cfg.model.mask_head.mask_feature_head.out_channels = channels
    if name == 'yolact':
        cfg.model.mask_head.num_classes = CLASSES
        cfg.model.test_cfg.update(nms_pre=200, top_k=60)
    if name in (*MASKS, *PROTOTYPES):
        cfg.model.test_cfg.max_per_img = 40
    if name in LOCATIONS:
        cfg.model.mask_head.update(num_grids=[12, 10, 8, 6, 4], stacked_convs=2)
        cfg.model.test_cfg.update(nms_pre=100, max_per_img=40)
        # Seeded weights seldom make a product of two larger than one half, and fill masks that are made of positive features.
        cfg.model.test_cfg.mask_thr = dict(solo=0.5, decoupled_solo=0.25, solov2=0.9)[name]
    if name == 'boxinst':
        # Its own makes targets from colours, for which it imports scikit-image; a picture is prepared by its base class.
        cfg.model.data_preprocessor = dict(cfg.model.data_preprocessor, type='DetDataPreprocessor')
        for key in ('mask_stride', 'pairwise_size', 'pairwise_dilation', 'pairwise_color_thresh', 'bottom_pixels_removed'):
            del cfg.model.data_preprocessor[key]
    if name == 'htc':
        cfg.model.roi_head.semantic_head.update(conv_out_channels=64, num_classes=20, num_convs=2)
    if name == 'gfl':
        # The head's own default, written out for `_widen_groups`.
        cfg.model.bbox_head.norm_cfg = dict(type='GN', num_groups=32, requires_grad=True)
    _widen_groups(cfg.model)
    other = OTHERS.get(name, (160, 96) if name in MULTIPLES else (161, 97))
    section = dict(inputs=dict(shape=shape_of(name)), verify=dict(shapes=[other], noises=2, batch=3))
    cfg.export = {**section, **export}
    return cfg


def shape_of(name: str) -> tuple[int, ...]:
    """Return the size that is exported."""
    return SHAPES.get(name, SHAPE)


def _widen_groups(node: Any) -> None:
    """Keep 16 channels a group, for the norm of two values is their sign, however near they are."""
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, (list, tuple)) else ():
        if isinstance(value, dict) and 'num_groups' in value:
            value['num_groups'] = 4
        _widen_groups(value)


@cache
def seeded_detector(name: str, size: tuple[int, int] | None = None) -> nn.Module:
    """Return a small detector with weights seeded for pictures of `size` (H, W); None takes that of the tests."""
    torch.manual_seed(0)
    model = build_model(tiny_detector(name))
    height, width = size or shape_of(name)[2:]
    seed_or_load(f'detector-{name}-{height}x{width}', model, lambda: seed_model(model, 0, (height, width)))
    return model


_references: dict[str, Reference] = {}


def exported(name: str, cfg: Config, folder: Path) -> Report:
    """Export a seeded detector. What eager answers on the same inputs is computed once, for all formats and planted faults."""
    key = f'{name} {cfg.export.inputs} {cfg.export.verify}'
    exporter = Exporter(cfg, None, folder, model=seeded_detector(name), diagnose=False, reference=_references.get(key))
    report, = exporter.run()
    assert exporter.reference is not None
    _references[key] = exporter.reference
    return report
