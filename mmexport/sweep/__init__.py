"""Export all config families of a package, in separate processes, on the machines of a Ray cluster."""
