"""When and in which order: the worker's state, triggers, deadlines. Pure."""
