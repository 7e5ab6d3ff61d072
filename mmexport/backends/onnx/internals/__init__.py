"""Hold the code that depends on the internals of torch.export; each part has a fallback that is right though slower."""
