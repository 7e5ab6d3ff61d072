"""Convolve at the places of a mask only."""
