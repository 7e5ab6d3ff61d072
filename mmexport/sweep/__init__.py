"""Export all config families of a package. Jobs run in separate processes, on the machines of a Ray cluster."""
