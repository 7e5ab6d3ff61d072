"""Compute what unpatched eager answers, and verify files against it."""
