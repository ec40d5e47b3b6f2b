"""Documents that are made from code, so that they cannot say something else.

    service.config.settings.Settings     -> docs/CONFIGURATION.md, `config` in helm/log-partitioner/values.schema.json
    service.adapters.metrics    -> docs/METRICS.md
    service.formats.log_events  -> docs/LOG_EVENTS.md

`python -m tools.docs` writes them; `python -m tools.docs --check` fails when one is out of date.
"""
