"""Hold one module for each backend, which needs torch and that runtime alone.

``load(file, device)`` returns a callable, image -> outputs.

``facts(runner)`` may say what only shows once the file is loaded; what it raises fails the check.
``names(runner)`` gives the names of each of the ``inputs`` and ``outputs`` where the format has some.
"""
