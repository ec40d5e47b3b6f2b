"""Fakes with behaviour behind `log_partitioner.boundary`; each passes the contract suite of the real thing."""
