"""Entries as Avro: types and their join, names, schemas, rows, the container. Pure bytes."""
