"""Whole workers on fakes: one thread, a virtual clock, one seed."""
