"""Make the inputs of a verification: sizes, synthetic scenes, photographs, and inputs on which classes are decided."""
