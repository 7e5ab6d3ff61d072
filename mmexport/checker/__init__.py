"""Compare the outputs of a lowered file with the expected ones. Only torch and numpy are needed.

This folder imports nothing of mmexport or OpenMMLab, and only relatively, so that ``python mmexport/checker DIR`` runs in
an environment with torch and numpy alone; of mmexport it also needs ``mmexport/backends/FORMAT/runner.py``. Every verification of mmexport
runs it that way, in a fresh process.
"""
