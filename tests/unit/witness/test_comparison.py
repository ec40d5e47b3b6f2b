"""Two audits' results side by side: findings of both, of one alone, and those that it cannot tell."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_partitioner.formats.findings import Kind
from log_partitioner.proof.accounting import ExitCode
from log_partitioner_pipeline.archive.compare import COMPARED, Comparison, Named, compare, encode, to_text
from log_partitioner_pipeline.audit.result import Counts, Coverage, Example, Finding, Result, Window, Witness
from log_partitioner_pipeline.audit.result import encode as encode_result
from log_partitioner_pipeline.cli import main
from log_partitioner_pipeline.errors import IncomparableError

Entries = Counter[tuple[Kind, int]]
"""How often a kind names the n-th entry."""

OUTPUTS, CSV = Witness.OUTPUTS, Witness.CSV
ENTRIES = st.dictionaries(st.tuples(st.sampled_from(COMPARED), st.integers(0, 5)), st.integers(1, 3), max_size=12).map(
    Counter
)
PLACES = {"brokers": "a:1,b:1", "cluster": "one", "source": "logs"}


def example_of(number: int, count: int = 1, **changed: Any) -> Example:
    """A finding about the n-th entry, as both audits tell it."""
    fields = {"topic": "logs", "partition": 0, "offset": number, "index": 0, "id": f"id-{number}", "text": "why"}
    return Example(**(fields | {"count": count} | changed))  # type: ignore[arg-type]


def findings(entries: Entries) -> list[Finding]:
    """Findings about entries."""
    return [
        Finding(
            kind=kind,
            count=sum(count for (one, _), count in entries.items() if one is kind),
            examples=[example_of(number, count) for (one, number), count in entries.items() if one is kind],
        )
        for kind in COMPARED
        if any(one is kind for one, _ in entries)
    ]


def result(against: Witness = OUTPUTS, found: list[Finding] | None = None, **changed: Any) -> Result:
    """A result over offsets 0 to 9."""
    coverage = Coverage(
        topic="logs",
        partition=0,
        retained_offset=0,
        end_offset=10,
        committed_offset=10,
        first_offset=0,
        next_offset=10,
        window_first_offset=0,
        window_next_offset=10,
    )
    one = Result(
        against=against,
        run_id="run",
        started_at_ms=0,
        seconds=1.0,
        places=PLACES,
        window=Window(from_ms=0, until_ms=1, padding_s=1.0),
        coverage=[coverage],
        counts=Counts(),
        findings=found or [],
        could_not_tell=[],
        notes=[],
        ids=None,
        dead_letters={},
        hours=[],
        record_hours=[],
        flushes=[],
        references_offsets={},
    )
    return msgspec.structs.replace(one, **changed)


def counted(comparison: Comparison, part: str) -> Entries:
    """One part of a comparison as it went in."""
    entries: Entries = Counter()
    for one in comparison.compared:
        for named in getattr(one, part):
            entries[one.kind, named.offset] += named.count
    return entries


@given(ENTRIES, ENTRIES, st.sampled_from([OUTPUTS, CSV]))
def test_both_and_alone_add_up_to_what_each_names(first: Entries, second: Entries, against: Witness) -> None:
    """Both are the smaller numbers, alone what is beyond: nothing is lost and nothing is told twice."""
    comparison = compare(result(OUTPUTS, findings(first)), result(against, findings(second)))
    assert counted(comparison, "both") == first & second
    assert counted(comparison, "only_first") == first - second
    assert counted(comparison, "only_second") == second - first
    assert comparison.agrees is (first == second)
    assert comparison.exit_code is (ExitCode.FINDINGS if first or second else ExitCode.CLEAN)


@given(ENTRIES, ENTRIES)
def test_the_other_way_round_it_says_the_same(first: Entries, second: Entries) -> None:
    """Only the sides change their places."""
    one, other = result(OUTPUTS, findings(first)), result(CSV, findings(second))
    there, back = compare(one, other), compare(other, one)
    assert (there.agrees, there.exit_code, there.first) == (back.agrees, back.exit_code, back.second)
    for part, mirrored in (("both", "both"), ("only_first", "only_second"), ("only_second", "only_first")):
        assert counted(there, part) == counted(back, mirrored)
    assert sorted(there.judgement) == sorted(back.judgement)


def test_ids_count_where_one_witness_has_no_positions() -> None:
    """A row of an archive is nowhere in the source; with positions on both sides the position tells."""
    here, there = [example_of(1, text="here")], [example_of(1, topic=None, partition=None, offset=None, index=None)]
    one = result(OUTPUTS, [Finding(kind=Kind.UNEXPECTED, count=1, examples=here)])
    by_csv = result(CSV, [Finding(kind=Kind.UNEXPECTED, count=1, examples=there)])
    (compared,) = compare(one, by_csv).compared
    assert compared.both == [Named(id="id-1", topic="logs", partition=0, offset=1, index=0, count=1, text="here")]
    moved = result(OUTPUTS, [Finding(kind=Kind.UNEXPECTED, count=1, examples=[example_of(2, id="id-1")])])
    (compared,) = compare(one, moved).compared
    assert (len(compared.only_first), len(compared.only_second)) == (1, 1)


def test_what_the_other_cannot_speak_of_is_set_apart() -> None:
    """An entry without id, and one at an offset that the other audit has not read: neither agreed nor denied."""
    some = [example_of(1, id=None), example_of(12), example_of(3)]
    comparison = compare(result(OUTPUTS, [Finding(kind=Kind.MISSING, count=3, examples=some)]), result(CSV))
    assert [one.offset for one in comparison.first.not_comparable] == [1, 12]
    assert counted(comparison, "only_first") == Counter({(Kind.MISSING, 3): 1})
    alone = compare(result(OUTPUTS, [Finding(kind=Kind.MISSING, count=2, examples=some[:2])]), result(CSV))
    assert (alone.compared, alone.exit_code) == ([], ExitCode.FINDINGS)
    assert alone.judgement == ["2 findings of the outputs are of entries that the archive cannot speak of"]


def test_examples_that_are_not_all_tell_nothing() -> None:
    """Ten of thirty-seven: what only one names cannot be known; exit code 2, and the words say what to do."""
    short = [Finding(kind=Kind.MISSING, count=37, examples=[example_of(number) for number in range(10)])]
    comparison = compare(result(OUTPUTS, short), result(CSV, findings(Counter({(Kind.ALTERED, 1): 1}))))
    assert comparison.exit_code is ExitCode.COULD_NOT_TELL
    assert not comparison.agrees
    says = "the first result lists 10 of 37 missing: run that audit again with --examples 37"
    assert comparison.could_not_tell == [says]
    assert says in to_text(comparison)
    assert counted(comparison, "only_first") == Counter()


def test_a_doubt_of_one_is_a_doubt_of_the_comparison() -> None:
    """Two results without findings are clean only if both could tell."""
    comparison = compare(result(), result(CSV, could_not_tell=["a file cannot be read"]))
    assert (comparison.exit_code, comparison.agrees) == (ExitCode.COULD_NOT_TELL, True)
    assert comparison.judgement == ["the archive could not tell: a file cannot be read"]
    assert compare(result(), result(CSV)).judgement == ["both are clean: they say the same as the source"]


def test_findings_that_are_about_no_entry_stand_beside() -> None:
    """A broken line of the archive, an object that is gone: the other witness knows nothing of these."""
    gone = Finding(kind=Kind.CSV_BROKEN, count=2, examples=[Example(text="line 4")])
    comparison = compare(result(), result(CSV, [gone]))
    assert (comparison.exit_code, comparison.second.beside) == (ExitCode.FINDINGS, {"csv_broken": 2})


def test_the_judgement_says_whose_the_loss_is() -> None:
    """Both, the outputs alone, the archive alone."""
    missing = [Counter({(Kind.MISSING, 1): 1, (Kind.MISSING, number): 1}) for number in (2, 3)]
    comparison = compare(result(OUTPUTS, findings(missing[0])), result(CSV, findings(missing[1])))
    assert comparison.judgement == [
        "1 missing in both: lost before them or in what they share, not by one of them",
        "1 missing in the outputs alone, not in the archive: lost on the way to the outputs",
        "1 missing in the archive alone, not in the outputs: lost on the way to the archive",
    ]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"places": PLACES | {"source": "other"}}, "the sources differ: logs and other"),
        ({"places": PLACES | {"cluster": "another"}}, "the Kafka clusters differ: one and another"),
        ({"places": {"brokers": "c:1", "source": "logs"}}, "no broker is in both results"),
        ({"places": {}, "could_not_tell": ["no broker"]}, "could not be done: no broker"),
    ],
)
def test_results_of_different_grounds_are_refused(changed: dict[str, Any], says: str) -> None:
    """Saying what differs, whichever is the first."""
    for pair in ((result(), result(CSV, **changed)), (result(CSV, **changed), result())):
        with pytest.raises(IncomparableError) as refused:
            compare(*pair)
        assert says.partition(":")[0] in str(refused.value)


def covering(first: int, end: int, window: tuple[int, int] | None = None) -> list[Coverage]:
    """Offsets that an audit covers, and those of its window."""
    begin, after = window or (first, end)
    (one,) = result().coverage
    return [
        msgspec.structs.replace(
            one, first_offset=first, next_offset=end, window_first_offset=begin, window_next_offset=after
        )
    ]


def test_two_results_of_one_witness_need_the_same_window() -> None:
    """Padding is a choice of who asks; both ends are not."""
    for against in (OUTPUTS, CSV):
        wider = result(against, window=Window(from_ms=0, until_ms=2, padding_s=1.0))
        with pytest.raises(IncomparableError, match=r"the windows differ: .*; give both the same --from and --until"):
            compare(result(against), wider)


def test_outputs_are_compared_where_their_audit_holds_the_window_of_the_archive() -> None:
    """Offsets decide, not the windows that were asked for; the comparison is of the archive's window."""
    archive = result(CSV, coverage=covering(2, 9, window=(3, 8)))
    window = Window(from_ms=-5, until_ms=99, padding_s=0)
    comparison = compare(archive, result(coverage=covering(3, 8), window=window))
    assert (comparison.exit_code, comparison.window) == (ExitCode.CLEAN, archive.window)
    for first, end in ((4, 10), (0, 7)):
        short = result(coverage=covering(first, end))
        for pair in ((archive, short), (short, archive)):
            with pytest.raises(IncomparableError) as refused:
                compare(*pair)
            assert str(refused.value) == (
                "logs-0: the archive's window is offsets [3, 8), the audit of the outputs covers "
                f"[{first}, {end}): audit the outputs in a wider window, or when more is committed"
            )
    with pytest.raises(IncomparableError, match=r"the audit of the outputs covers \[0, 0\)"):
        compare(archive, result(coverage=[]))
    empty = result(CSV, coverage=covering(3, 3))
    assert compare(empty, result(coverage=[])).exit_code is ExitCode.CLEAN


def test_what_the_outputs_name_beside_the_window_of_the_archive_is_not_comparable() -> None:
    """A flush is audited as a whole, and reaches out of the window: by record timestamp, or by offset."""
    archive = result(CSV, coverage=covering(0, 10, window=(3, 8)))
    named = [
        example_of(2),
        example_of(3, timestamp_ms=0),
        example_of(4, timestamp_ms=-1),
        example_of(5, timestamp_ms=1),
        example_of(7),
        example_of(8),
    ]
    found = [Finding(kind=Kind.MISSING, count=len(named), examples=named)]
    comparison = compare(result(found=found), archive)
    assert [one.offset for one in comparison.first.not_comparable] == [2, 4, 5, 8]
    assert counted(comparison, "only_first") == Counter({(Kind.MISSING, 3): 1, (Kind.MISSING, 7): 1})
    by_archive = compare(result(), msgspec.structs.replace(archive, findings=found))
    assert by_archive.second.not_comparable == []


def test_the_same_cluster_by_another_broker_is_compared() -> None:
    """Bootstrap servers are a choice of who asks; padding is, too."""
    places = PLACES | {"brokers": "z:9"}
    window = Window(from_ms=0, until_ms=1, padding_s=99.0)
    assert compare(result(), result(CSV, places=places, window=window)).exit_code is ExitCode.CLEAN


def test_the_command_reads_files_and_gives_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text and as JSON, without any settings; a file that is no result is refused in words."""
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    lost = findings(Counter({(Kind.MISSING, 1): 1}))
    for file, one in zip(files, (result(OUTPUTS, lost), result(CSV, lost)), strict=True):
        Path(file).write_bytes(encode_result(one))
    assert main(["compare", *files]) == 1
    text = capsys.readouterr().out
    assert "missing in both: 1" in text
    assert text.endswith("the witnesses agree (1)\n")
    assert main(["compare", *files, "--json"]) == 1
    comparison = compare(result(OUTPUTS, lost), result(CSV, lost))
    assert capsys.readouterr().out.encode() == encode(comparison)
    Path(files[1]).write_text("{}")
    assert main(["compare", *files]) == 2
    assert "b.json is no result of an audit" in capsys.readouterr().err
