"""Export detectors of one stage that do otherwise than a dense head with NMS: other suppression, or masks of instances."""
