"""When and in which order: the state machine, triggers, deadlines. Pure."""
