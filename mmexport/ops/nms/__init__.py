"""Suppress boxes that overlap a better one."""
