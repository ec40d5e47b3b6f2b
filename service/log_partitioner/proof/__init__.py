"""Proves that each entry was delivered exactly once; shares formats with the worker, and no rule."""
