"""Provide helpers that know nothing of models or formats."""
