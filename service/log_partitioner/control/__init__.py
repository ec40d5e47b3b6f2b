"""The order of things: the worker's state, triggers, deadlines. Pure."""
