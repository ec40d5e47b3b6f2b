"""Fakes with behaviour behind `service.runtime.ports`; each passes the contract suite of the real thing."""
