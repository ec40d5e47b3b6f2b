"""The jobs: each file wires one, and decides nothing."""
