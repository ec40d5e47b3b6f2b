"""Faults on real processes: three brokers, a store behind a fault proxy, workers; and the judgement at the end.

chaos
├── faults     what can be done, and plans of it: pure, seeded
├── bed        brokers, store, their proxies; topics and bucket of one run
├── injector   does it
├── watch      committed offsets while it is done: how long until all of before is committed
├── run        one run: records flow, faults come, drain, audit
├── matrix     cells: who is bounced, how, in which protocol, on which store
├── endurance  hours in pieces, with audits on the way
└── figures    what a run was, as it is recorded
"""
