"""Pure rules: values in, values out. No clock, no threads, no files, no sockets, no logging."""
