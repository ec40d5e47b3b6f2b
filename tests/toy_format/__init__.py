"""A format of the tests, lines of CSV, in two files: as the worker reads it, and as the second opinion does."""
