"""Read configs, and build and load models."""
