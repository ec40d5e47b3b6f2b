"""A reference to change with `msgspec.structs.replace`, for tests to which most of it does not matter."""

from service.core.reference import Checksum, Location, Partition, Reference, SchemaLocation

REFERENCE = Reference(
    reference_id="r",
    batch_id="b",
    worker="w",
    generation=1,
    location=Location("data", "o", None, None, 1, Checksum("sha256", ""), ((0, 1),)),
    partition=Partition("ann", "2026-03-04", 5),
    entries=1,
    event_time_min_us=0,
    event_time_max_us=0,
    schema=SchemaLocation("", ""),
    field_counts={},
    sources=(),
)
