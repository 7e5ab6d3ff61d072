"""Compute the metrics of comparisons. The modules of `kinds` say which rule an output has, and share these."""
