"""Which files of an archive an audit reads, and what it says of those that it cannot read."""

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from log_partitioner.config.settings import IdSettings, UserSettings
from log_partitioner.formats.findings import Kind
from log_partitioner_pipeline.archive.files import list_files, rows_of
from log_partitioner_pipeline.archive.run import require_ids
from log_partitioner_pipeline.archive.source import entries_of
from log_partitioner_pipeline.audit.result import Window
from log_partitioner_pipeline.config import JobSettings, load_all
from log_partitioner_pipeline.errors import ArchiveError, PipelineError
from log_partitioner_pipeline.jobs.audit_options import add_audit_arguments, archive_of

HOUR_MS = 3_600_000
FIVE_MS = 1_772_600_400_000  # 2026-03-04T05:00Z
FILES = {
    "2026/03/04/04/a.csv": b"id\n1\n",
    "2026/03/04/05/b.csv.gz": gzip.compress(b"id\n2\n"),
    "2026/03/04/06/c.csv": b"id\n3\n",
    "2026/03/04/05/notes.txt": b"",
    "rest.csv": b"id\n4\n",
}


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> JobSettings:
    """Settings of a job beside a worker without unique ids."""
    monkeypatch.setenv("LOGP_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("LOGP_KAFKA__SOURCE_TOPICS", '["none"]')
    monkeypatch.setenv("LOGP_S3__BUCKET", "none")
    monkeypatch.setenv("PIPELINE_CSV__FOLDERS", "%Y/%m/%d/%H")
    monkeypatch.setenv("PIPELINE_CSV__TIME_COLUMN", "at")
    monkeypatch.setenv("PIPELINE_CSV__USER_COLUMN", "who")
    return load_all()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An archive by hours, with a file that no folder dates."""
    for path, content in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    return tmp_path


def listed(settings: JobSettings, root: Path, window: Window) -> dict[str, bool]:
    """Give the files that are read, and whether their broken lines count."""
    found = list_files(settings, str(root), window)
    assert [one.size for one in found] == [Path(one.name).stat().st_size for one in found]
    return {str(Path(one.name).relative_to(root)): one.is_in_window for one in found}


def test_a_window_reads_its_folders_and_those_of_its_padding(settings: JobSettings, root: Path) -> None:
    """Files that no folder dates are read, too; a broken line counts only if a folder puts it into the window."""
    window = Window(from_ms=FIVE_MS, until_ms=FIVE_MS + HOUR_MS, padding_s=60)
    a, b, c, rest = sorted(path for path in FILES if "csv" in path)
    assert listed(settings, root, window) == {a: False, b: True, c: False, rest: False}
    inside = Window(from_ms=FIVE_MS + 120_000, until_ms=FIVE_MS + HOUR_MS - 120_000, padding_s=60)
    assert listed(settings, root, inside) == {b: True, rest: False}
    open_end = Window(from_ms=FIVE_MS + HOUR_MS, until_ms=None, padding_s=0)
    assert listed(settings, root, open_end) == {c: True, rest: False}
    assert listed(settings, root, Window(from_ms=None, until_ms=None, padding_s=0)) == dict.fromkeys(
        (a, b, c, rest), True
    )


def test_an_archive_without_files_is_an_error_and_no_loss(settings: JobSettings, tmp_path: Path) -> None:
    """A wrong location must not look like an older system that has lost everything."""
    window = Window(from_ms=FIVE_MS, until_ms=FIVE_MS + HOUR_MS, padding_s=60)
    with pytest.raises(ArchiveError, match="there is no directory"):
        list_files(settings, str(tmp_path / "absent"), window)
    with pytest.raises(ArchiveError, match=r"has no file for this window that ends in \.csv or \.csv\.gz$"):
        list_files(settings, str(tmp_path), window)
    (tmp_path / "2026/03/05/01").mkdir(parents=True)
    (tmp_path / "2026/03/05/01/a.csv").touch()
    with pytest.raises(ArchiveError, match="and 1 of other times"):
        list_files(settings, str(tmp_path), window)


def rows(settings: JobSettings, file: Path, *, is_in_window: bool) -> list[dict[str, Any]]:
    """The rows of one file, as an executor reads them."""
    one = {"file": str(file), "is_in_window": is_in_window}
    return list(rows_of([one], settings=settings.worker, csv=settings.pipeline.csv))


def test_rows_broken_lines_and_files_come_out_of_one_reading(settings: JobSettings, tmp_path: Path) -> None:
    """A file that is gone is unread, one that is damaged a finding after the rows before the damage."""
    (gone,) = rows(settings, tmp_path / "gone.csv", is_in_window=True)
    assert (gone["unread"], "gone.csv" in gone["text"], "id" in gone) == (True, True, False)

    file = tmp_path / "a.csv"
    lines = ["at,id,who", "2026-03-04T05:00:01,a,u", "never,b,", ",c,-", '"', "2026-03-04T05:00:01,,u"]
    file.write_text("\n".join(lines))
    found = rows(settings, file, is_in_window=False)
    assert [(row["line"], row.get("id"), row.get("kind")) for row in found] == [
        (2, "a", None),
        (3, "b", None),
        (4, "c", None),
        (5, None, Kind.CSV_BROKEN),
        (6, None, None),
    ]
    assert [(row.get("event_time_us"), row.get("time_text"), row.get("user")) for row in found[:3]] == [
        ((FIVE_MS + 1000) * 1000, "2026-03-04T05:00:01", "u"),
        (None, "never", ""),
        (None, "", "-"),
    ]
    assert (found[0]["date"], found[0]["hour"], found[3]["is_in_window"]) == ("2026-03-04", 5, False)

    worker = settings.worker.model_copy(update={"user": UserSettings(missing_name="nobody")})
    file.write_bytes(b"who,id\n,a\n")
    (unnamed,) = rows(settings.model_copy(update={"worker": worker}), file, is_in_window=False)
    assert (unnamed["user"], unnamed["time_text"]) == ("nobody", None)

    file.write_bytes(b"no,columns\n")
    (wrong,) = rows(settings, file, is_in_window=True)
    assert (wrong["kind"], wrong["is_in_window"]) == (Kind.CSV_UNREADABLE, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--csv", "somewhere"], "say --against csv"),
        (["--against", "csv"], "where is the archive"),
        (["--against", "csv", "--csv", "x", "--table"], "--table is about"),
        (["--against", "csv", "--csv", "x", "--require-caught-up"], "--require-caught-up is about"),
    ],
)
def test_options_that_contradict_each_other_are_refused(arguments: list[str], says: str) -> None:
    """Before anything starts, in words."""
    parser = argparse.ArgumentParser()
    add_audit_arguments(parser)
    with pytest.raises(PipelineError, match=says):
        archive_of(parser.parse_args(arguments))
    given = parser.parse_args(["--against", "csv", "--csv", "x"])
    assert (archive_of(given), archive_of(parser.parse_args([]))) == ("x", None)


@pytest.mark.parametrize(
    ("entry", "entry_id"), [({"id": "a"}, "a"), ({"id": ""}, None), ({"id": None}, None), ({}, None)]
)
def test_an_empty_id_of_the_source_is_none(
    entry: dict[str, object], entry_id: str | None, settings: JobSettings
) -> None:
    """An empty id of the archive is none, too: both are counted, neither is compared."""
    worker = settings.worker.model_copy(update={"id": IdSettings(paths=("id",))})
    message = {"key": None, "topic": "logs", "partition": 0, "offset": 7, "timestamp_ms": FIVE_MS, "headers": None}
    value = json.dumps({"user": "u"} | entry).encode()
    (row,) = entries_of([message | {"value": value}], settings=worker, paths=())
    assert (row["deliverable"], row["id"]) == (True, entry_id)


def test_without_unique_ids_there_is_nothing_to_compare(settings: JobSettings) -> None:
    """The message names the setting."""
    with pytest.raises(ArchiveError, match="LOGP_ID__PATHS"):
        require_ids(settings)
