"""Tools around the service: the local stack, and files for dashboards and alerts.

Nothing here is part of the installed package; `log_partitioner` never imports it.
"""
