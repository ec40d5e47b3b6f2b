"""Adapters over scripted client libraries."""
