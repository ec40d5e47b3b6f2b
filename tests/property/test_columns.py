"""Columns of the table: laws of names and kinds, whatever comes in whatever order."""

from time import process_time

from hypothesis import given
from hypothesis import strategies as st

from log_partitioner_pipeline.columns import (
    FIXED,
    RESERVED,
    Column,
    Kind,
    ListOf,
    MapOf,
    Struct,
    admit,
    column_name,
    join,
    leaves,
    of_iceberg,
    to_iceberg,
)

_NAMES = ("a", "b", "A", "a-b")


def _structs(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Struct]:
    columns = st.lists(st.tuples(st.sampled_from(_NAMES), inner), min_size=1, max_size=3)
    return columns.map(lambda pairs: Struct({column_name(name): Column(name, kind) for name, kind in pairs}))


_KINDS: st.SearchStrategy[Kind] = st.recursive(
    st.sampled_from(["long53", "long", "double", "string", "boolean"]),
    lambda inner: st.one_of(_structs(inner), inner.map(ListOf), inner.map(MapOf)),
    max_leaves=6,
)
_WANTED = st.lists(_structs(_KINDS), max_size=4)


@given(st.text())
def test_names_are_plain(name: str) -> None:
    """Lower case, letters, digits and underscores; none of a reserved one, none that begins with a digit."""
    column = column_name(name, is_top=True)
    assert column not in RESERVED
    assert column
    assert not column[0].isdecimal()
    assert all(one == "_" or one.isalnum() for one in column.lower())


@given(_KINDS, _KINDS)
def test_a_joined_kind_takes_both(one: Kind, other: Kind) -> None:
    """Two kinds may have no joined one; structs have the columns of both, and the first one's if they disagree."""
    joined = join(one, other)
    assert join(one, one) == one
    if joined is not None:
        assert join(joined, one) == joined
        assert leaves(joined) >= leaves(one)
        if not isinstance(one, Struct):
            assert join(joined, other) == joined


@given(_WANTED, _WANTED, st.integers(0, 12))
def test_a_table_only_grows_and_never_beyond_its_room(
    first: list[Struct], more: list[Struct], columns_max: int
) -> None:
    """It keeps what it has, and holds kinds of columns only; every struct has some."""
    table = admit(FIXED, first, columns_max=columns_max + leaves(FIXED))
    grown = admit(table, more, columns_max=columns_max + leaves(FIXED))
    assert leaves(grown) <= columns_max + leaves(FIXED)
    assert join(grown, table) == grown
    assert join(table, grown) == grown
    assert "long53" not in str(to_iceberg(grown))
    assert of_iceberg(to_iceberg(grown)) == grown
    assert admit(grown, more, columns_max=columns_max + leaves(FIXED)) is grown


@given(_WANTED)
def test_with_room_for_all_each_name_has_a_column(wanted: list[Struct]) -> None:
    """The first values under a name give its column; an integer is a double if other numbers came with it."""
    table = admit(Struct(), wanted, columns_max=10_000)
    for struct in wanted:
        for name, column in struct.columns.items():
            assert table.columns[name].original in _NAMES
            assert column_name(table.columns[name].original) == name == column_name(column.original)


def test_names_that_nobody_repeats_cost_little() -> None:
    """A client makes up names, a thousand in each schema: what there is no room for costs next to nothing."""
    begun = process_time()
    wanted = [Struct({f"n{n}_{m}": Column(f"n{n}_{m}", "long") for m in range(1000)}) for n in range(100)]
    admitted = admit(FIXED, wanted, columns_max=1000)
    assert leaves(admitted) == 1000
    assert process_time() - begun < 10
