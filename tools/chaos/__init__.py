"""Faults on real processes: three brokers, a store behind a fault proxy, workers; and the judgement at the end.

chaos
├── faults     faults, and plans of them: pure, seeded
├── bed        brokers, store, their proxies; topics and bucket of one run
├── injector   executes a plan
├── watch      committed offsets meanwhile: the time until all records from before a fault are committed
├── run        one run: records flow, faults come, drain, audit
├── matrix     cells by bounced member, way of the bounce, protocol and store
├── endurance  hours in pieces, with audits on the way
└── figures    the record of a run
"""
