"""README's lines read the reference that README shows."""

import io
import json
import re
from typing import Any

import boto3
import pytest

from tests.deployment.tools import ROOT

GOLDEN = ROOT / "tests" / "golden" / "format-1"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """Take the one code block in this language."""
    (code,) = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return str(code)


class OneObject:
    """An S3 client that has the golden pack, and no other object."""

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803 - boto3 calls them so
        """Open the pack if it is asked for by its place."""
        place = json.loads((GOLDEN / "references.json").read_text())["object"]
        assert (Bucket, Key) == (place["bucket"], place["key"])
        return {"Body": io.BytesIO((GOLDEN / "pack.avro").read_bytes())}


def read(message: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[Any], tuple[object, ...]]]:
    """Run the lines on a message; each row as user, hour, and its place in the source with a value."""
    monkeypatch.setattr(boto3, "client", lambda service: {"s3": OneObject()}[service])
    names: dict[str, Any] = {}
    exec(block("python"), names)  # noqa: S102 - it is what a reader of the page does
    return [(user, hour, place_of(row)) for user, hour, row in names["entries"](message)]


def place_of(row: dict[str, Any]) -> tuple[object, ...]:
    """Return what tells a row of the golden pack from the others."""
    meta = row["_meta"]
    return meta["topic"], meta["partition"], meta["offset"], meta["index"], row["path"]


def test_lines_of_readme_read_every_row_of_every_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each under its user and hour, and no row of another."""
    whole = json.loads((GOLDEN / "references_whole.json").read_text())
    rows = json.loads((GOLDEN / "rows.json").read_text())
    expected = [
        (reference["partition_key"][0], reference["partition_key"][1:], place_of(row))
        for reference, own in zip(whole, rows, strict=True)
        for row in own
    ]
    assert read((GOLDEN / "references.json").read_text(), monkeypatch) == expected


def test_reference_of_readme_is_a_part_of_a_message_and_is_read_by_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left out is what these lines do not need; nothing is made up."""
    shown, message = json.loads(block("json")), json.loads((GOLDEN / "references.json").read_text())
    assert shown["object"].items() <= message["object"].items()
    assert shown["hours"] == message["hours"]
    assert shown["references"] == message["references"][:1]
    assert [user for user, _, _ in read(block("json"), monkeypatch)] == ["ann"] * 3


def test_readme_is_read_in_five_minutes() -> None:
    """Longer texts belong to a page of docs/."""
    assert len(README.split()) <= 900
