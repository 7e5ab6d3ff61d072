"""Export box detection: mmdet's detectors of one and two stages, and those of queries; masks of instances."""
