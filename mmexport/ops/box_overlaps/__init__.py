"""Compute how much boxes overlap."""
