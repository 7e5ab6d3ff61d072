"""Compare the outputs of a lowered file with the expected ones. Only torch and numpy are needed.

This folder imports nothing of mmexport or OpenMMLab, and only relatively, so that it also runs by itself: ``python mmexport/checker
DIR`` in an environment with torch and numpy. Every verification of mmexport runs it that way, in a fresh process.
"""
