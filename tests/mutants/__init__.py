"""Deliberately wrong workers by name: what each does wrong, where that is known from, and which tool has to notice it.

`registry.py` lists them, `make mutants` runs each against every tool, `docs/MUTANTS.md` has what came of it.
"""
