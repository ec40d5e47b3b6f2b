"""What others read: references, flush records, dead letters, keys, metadata of offsets. Imports nothing of ours."""
