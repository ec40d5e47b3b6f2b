"""Deliberately wrong workers by name: what each does wrong, where that is known from, and which tool has to notice it.

`registry.py` lists them, `python -m tests.mutants` runs each against every tool, `docs/MUTANTS.md` has what came of it.
"""
