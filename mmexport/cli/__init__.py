"""Implement the commands, one subcommand a module."""
