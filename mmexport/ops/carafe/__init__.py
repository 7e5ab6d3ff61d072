"""Enlarge a feature map with kernels that the network computes."""
