"""One suite per port, run against the fake and against the real thing."""
