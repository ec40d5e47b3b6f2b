"""References shared out to tasks: an object is fetched once, a large one in pieces, and nothing is read twice."""

from collections import Counter
from itertools import chain, pairwise

from msgspec.structs import replace

from log_partitioner.formats.model import PartitionKey
from log_partitioner.formats.reference import Reference
from log_partitioner_pipeline import pieces
from log_partitioner_pipeline.pieces import ReadGroup, decode_share, encode_share, pieces_of, share_out
from tests.pipeline.packs import KEY, Entry, write_object

MIB = 1024 * 1024
HEADER = 5000


def packed(lengths: list[int], *, number: int = 0) -> list[Reference]:
    """Give references into one pack, with blocks of these lengths."""
    (one,) = write_object([Entry(KEY, {"n": 1})], object_key=f"p/pack/b-{number}.avro").references
    found, start = [], HEADER
    for at, length in enumerate(lengths):
        ranges = ((0, start + length),) if start == HEADER else ((0, HEADER), (start, length))
        location = replace(one.location, ranges=ranges, size=HEADER + sum(lengths))
        found.append(replace(one, reference_id=f"b-{1000 * number + at}", location=location))
        start += length
    return found


def ids_of(some: list[ReadGroup]) -> list[str]:
    """Give the references of pieces."""
    return [part.reference_id for piece in some for part in piece.parts]


def test_a_pack_is_one_piece() -> None:
    """Its references in the order of its bytes, whatever theirs was; one request gives all of it."""
    references = packed([100, 200, 300])
    (piece,) = pieces_of(references[::-1])
    assert ids_of([piece]) == ["b-0", "b-1", "b-2"]
    assert piece.spans == ((0, HEADER + 600),)
    assert piece.where == "s3://data/p/pack/b-0.avro"


def test_part_of_a_pack_is_its_header_and_one_span() -> None:
    """The lines of one message, of many that announce the object: what is before and behind them is not fetched."""
    (piece,) = pieces_of(packed([MIB] * 8)[4:6])
    assert piece.spans == ((0, HEADER), (HEADER + 4 * MIB, 2 * MIB))
    (near,) = pieces_of(packed([1000] * 8)[4:6])
    assert near.spans == ((0, HEADER + 6000),)


def test_what_nobody_wants_is_not_fetched() -> None:
    """Two lines at the ends of a pack are two pieces."""
    first, *_, last = packed([1000, MIB, 1000])
    assert [piece.spans for piece in pieces_of([first, last])] == [
        ((0, HEADER + 1000),),
        ((0, HEADER), (HEADER + 1000 + MIB, 1000)),
    ]


def test_projections_are_named_once() -> None:
    """Thousands of references have few schemas; each is text once, and a number after that."""
    entries = [Entry(PartitionKey(f"u{at}", *KEY[1:]), {"a": 1} if at % 2 else {"b": 2}) for at in range(6)]
    (piece,) = pieces_of(write_object(entries).references)
    assert piece.projections == ("[1]", "[0]")
    assert [part.projection for part in piece.parts] == [0, 1, 0, 1, 0, 1]


def test_a_large_object_is_read_by_several_tasks() -> None:
    """32 MiB of one pack: the same work for each, every reference once, spans that do not overlap."""
    references = packed([MIB] * 32)
    shares = share_out(references, tasks=4)
    assert sorted(len(ids_of(share)) for share in shares) in ([7, 8, 8, 9], [8, 8, 8, 8])
    assert sorted(chain(*map(ids_of, shares))) == sorted(one.reference_id for one in references)
    behind = sorted(span for share in shares for piece in share for span in piece.spans if span[0] > 0)
    assert all(begin + length <= after for (begin, length), (after, _) in pairwise(behind))


def test_many_references_are_work() -> None:
    """Twenty thousand tiny ones in one object are shared out, too."""
    shares = share_out(packed([50] * 20_000), tasks=2)
    assert all(9_000 < len(ids_of(share)) < 11_000 for share in shares)
    (one,) = share_out(packed([50] * 20), tasks=2)
    assert len(one) == 1


def test_a_task_is_bounded() -> None:
    """More work than two tasks may have makes more tasks; no share is empty."""
    references = list(chain(*(packed([MIB] * 30, number=number) for number in range(20))))
    shares = share_out(references, tasks=2)
    sizes = [sum(length for piece in share for _, length in piece.spans) for share in shares]
    assert len(shares) == 3
    assert max(sizes) < pieces._TASK_BYTES_MAX
    assert share_out([], tasks=2) == []


def test_small_files_are_spread_evenly() -> None:
    """If every object has one reference, all tasks get the same number of them."""
    references = list(chain(*(packed([100], number=number) for number in range(100))))
    shares = share_out(references, tasks=4)
    assert Counter(len(share) for share in shares) == {25: 4}


def test_a_share_is_small_on_its_way() -> None:
    """A task's share takes some tens of bytes for each reference."""
    references = packed([50] * 1000)
    (share,) = share_out(references, tasks=1)
    encoded = encode_share(share)
    assert decode_share(encoded) == share
    assert len(encoded) < 70 * len(references)
