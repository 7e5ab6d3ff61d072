"""Take the largest value of a feature map along each side of a box."""
