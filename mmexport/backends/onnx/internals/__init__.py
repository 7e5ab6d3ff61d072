"""Hold the code that depends on the internals of torch's ONNX exporters; each part has a fallback that is right though slower."""
