"""Archived CSV: every row comes out as it went in, and what is no row costs its neighbours nothing."""

import csv
import gzip
import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from log_partitioner_pipeline.archive import rows
from log_partitioner_pipeline.archive.rows import BrokenLine, CsvRow, read_csv
from log_partitioner_pipeline.config import CsvSettings
from log_partitioner_pipeline.errors import ArchiveError

SETTINGS = CsvSettings()
FIELDS = st.text(st.characters(codec="utf-8"), max_size=12)
IDS = st.text("abc", min_size=1, max_size=4)
ROWS = st.lists(st.tuples(IDS, FIELDS, FIELDS), max_size=12)


def read(data: bytes, settings: CsvSettings = SETTINGS) -> list[CsvRow | BrokenLine]:
    return list(read_csv(data, settings))


def ids(found: list[CsvRow | BrokenLine]) -> list[str]:
    return [one.fields["id"] for one in found if isinstance(one, CsvRow)]


def broken(found: list[CsvRow | BrokenLine]) -> list[int]:
    return [one.line for one in found if isinstance(one, BrokenLine)]


@given(
    rows=ROWS,
    is_compressed=st.booleans(),
    delimiter=st.sampled_from([",", ";", "\t"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig"]),
    escapes=st.booleans(),
)
@example(rows=[("a", 'x,"\r\n', "\n\r")], is_compressed=True, delimiter=",", encoding="utf-8-sig", escapes=False)
def test_what_a_csv_writer_writes_is_read_as_it_was(
    *, rows: list[tuple[str, str, str]], is_compressed: bool, delimiter: str, encoding: str, escapes: bool
) -> None:
    """Any text in any field, with quotes, delimiters and line ends in it; the line is where the row begins."""
    text = io.StringIO(newline="")
    escape = "\\" if escapes else None
    writer = csv.writer(text, delimiter=delimiter, doublequote=not escapes, escapechar=escape)
    writer.writerow(["id", "x", "y"])
    begins = []
    for row in rows:
        begins.append(sum(1 for _ in io.StringIO(text.getvalue(), newline="")) + 1)
        writer.writerow(row)
    data = text.getvalue().encode(encoding)
    found = read(
        gzip.compress(data) if is_compressed else data,
        CsvSettings(delimiter=delimiter, encoding=encoding, escape=escape),
    )
    assert found == [CsvRow(at, {"id": a, "x": b, "y": c}) for at, (a, b, c) in zip(begins, rows, strict=True)]


@given(st.lists(IDS, min_size=1, max_size=20), st.data())
def test_a_stray_quote_costs_its_line_alone(names: list[str], data: st.DataObject) -> None:
    """A quote that is never closed, or another number of fields, among rows without line ends in their fields."""
    spoilt = data.draw(st.sets(st.integers(0, len(names) - 1)))
    fault = data.draw(st.sampled_from(['"{}', '{},"x', "{},x,y,z", '"{}"x,y', "{}"]))
    lines = [fault.format(name) if nth in spoilt else f'{name},"x"' for nth, name in enumerate(names)]
    found = read("\n".join(["id,x", *lines, ""]).encode())
    assert ids(found) == [name for nth, name in enumerate(names) if nth not in spoilt]
    assert broken(found) == [nth + 2 for nth in sorted(spoilt)]


def test_bytes_that_are_no_text_break_their_line() -> None:
    """They are no error of the file, and no character is replaced, because that would alter an id."""
    found = read(b"id,x\na,\xff\nb,\xc3\xa4\n")
    assert (ids(found), broken(found)) == (["b"], [2])


def test_an_open_quote_reads_no_more_lines_than_a_row_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a million lines is not read to its end for each quote that is open; a row may have no more lines."""
    text = "\n".join("abcdefghij")
    monkeypatch.setattr(rows, "_ROW_LINES_MAX", 9)
    assert broken(read(f'id,x\na,"{text}"\n'.encode()))[0] == 2
    monkeypatch.setattr(rows, "_ROW_LINES_MAX", 10)
    assert broken(read(f'id,x\na,"{text}"\n'.encode())) == []
    data = ("id,x\n" + '"open,x\n' + "a,b\n" * 50).encode()
    found = read(data)
    assert (ids(found), broken(found)) == (["a"] * 50, [2])


def test_a_quote_that_escapes_itself_is_a_doubled_quote() -> None:
    """As Spark and others call it; it is how quotes are written without any escape."""
    found = read(b'id,x\na,"say ""so"""\n', CsvSettings(escape='"'))
    assert found == [CsvRow(2, {"id": "a", "x": 'say "so"'})]


def test_columns_come_from_each_header_or_from_settings() -> None:
    """The header of the file names its columns, in whatever order; without one settings do."""
    assert read(b"x,id\n1,a\n") == [CsvRow(2, {"x": "1", "id": "a"})]
    assert read(b"1,a\n", CsvSettings(columns=("x", "id"))) == [CsvRow(1, {"x": "1", "id": "a"})]
    assert read(b"") == read(b"id,x\n") == []


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"a,b\n1,2\n", "there is no column 'id' among 'a', 'b'"),
        (b"id,id\n1,2\n", "column 'id' is there more than once"),
        (b'"id\n', "line 1 is no header"),
        (b"\x1f\x8bnothing", "its gzip is damaged"),
        (gzip.compress(b"id\n" + b"a\n" * 999, mtime=0)[:-9], "its gzip is damaged"),
    ],
)
def test_a_file_that_is_not_what_settings_say_is_told(data: bytes, says: str) -> None:
    """A file that cannot be read to its end is an error with a reason, after the rows that could be read."""
    with pytest.raises(ArchiveError, match=says):
        read(data)
