"""Export instance segmentation without boxes, by location: mmdet's SOLO and SOLOv2."""
