"""Documents that are made from code, so that they cannot say something else.

    log_partitioner.config.settings     -> docs/CONFIGURATION.md, `config` in helm/log-partitioner/values.schema.json
    helm/log-partitioner/values.yaml    -> README.md and the rest of values.schema.json beside it
    log_partitioner.adapters.metrics    -> docs/METRICS.md
    log_partitioner.formats.log_events  -> docs/LOG_EVENTS.md

`python -m tools.docs` writes them; `python -m tools.docs --check` fails when one is out of date.
"""
