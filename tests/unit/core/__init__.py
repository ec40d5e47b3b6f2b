"""Each rule of service/core with literal cases; files are named as the modules."""
