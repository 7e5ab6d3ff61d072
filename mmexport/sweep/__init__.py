"""The whole of a package, a config and a format at a time, in processes of their own, on as many machines as Ray has."""
