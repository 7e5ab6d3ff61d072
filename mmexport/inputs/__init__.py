"""Inputs of a verification: which sizes, synthetic scenes, photographs, and pictures on which a model's classes are decided."""
