"""The demo: realistic logs, three workers, faults while records flow, and the audit at the end.

The data's path: generate | replay -> produce -> (the workers) -> watch -> display. `python -m tools.demo`
does all of it on a local stack; `python -m tools.demo.produce` only writes records to a topic.
"""
