"""Export panoptic and instance segmentation: mmdet's mask classifiers."""
