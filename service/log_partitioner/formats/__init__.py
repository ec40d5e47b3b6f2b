"""The formats that others read: references, flush records, dead letters, keys, metadata of offsets, log events.

Imports nothing of ours.
"""
