"""The formats that others read: references, flush records, dead letters, keys, metadata of offsets, log events.

Here stand the nouns and the values that all rooms share, too. Imports nothing of ours.
"""
