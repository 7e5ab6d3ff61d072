"""Name the exit codes of the checker; those of errors are the same, see `mmexport.errors`."""
PASSED, FAILED, WRONG_INPUT, ENVIRONMENT = range(4)
