"""Fakes with behaviour behind `log_partitioner.runtime.ports`; each passes the contract suite of the real thing."""
