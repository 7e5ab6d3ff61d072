"""Take the largest values of a feature map in regions of interest."""
