"""Bytes of a record -> its entries. Pure."""
