"""Sample a feature map in regions of interest."""
