"""Export box detection: mmdet's detectors of one stage."""
