"""Convert the maps of heads to boxes, suppress those that overlap, and tell which of them eager itself is not sure of."""
