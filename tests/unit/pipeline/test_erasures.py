"""Was a reference erased? By digest and offsets, never by name."""

from log_partitioner_pipeline.erasures import Erased, digest_of


def test_references_below_the_offsets_are_erased() -> None:
    """This user's, by partition; a partition that was not there then has none."""
    erased = Erased({digest_of("ann"): {0: 5, 1: 0}})
    assert erased.has("ann", partition=0, offset=4)
    assert not erased.has("ann", partition=0, offset=5)
    assert not erased.has("ann", partition=1, offset=0)
    assert not erased.has("ann", partition=2, offset=0)
    assert not erased.has("bob", partition=0, offset=4)
    assert not erased.has(digest_of("ann"), partition=0, offset=4)
