"""One module for each backend: ``load(file, device)`` gives a callable, image -> outputs, and needs torch and that runtime alone.

``facts(runner)`` may say what only shows once the file is loaded; what it raises fails the check.
``names(runner)`` gives the names of each of the ``inputs`` and ``outputs`` where the format has some.
"""
