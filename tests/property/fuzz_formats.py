"""`python -m tests.property.fuzz_formats 30 avro`: any bytes as records of formats, for so many minutes each.

Worker and second opinion have to agree on each input (`fuzzed.judge`). One that fails ends it, and stays beside the
folder of all inputs that led to new code; the small ones of these are kept in tests/property/corpus. Coverage leads the
way, by Atheris, which is no dependency: `pip install atheris` into the environment, or into one on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from base64 import b85encode
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, FunctionType
from typing import TYPE_CHECKING

from tests.property.fuzzed import CORPUS, FORMATS, GLUE, HEAD_BYTES, ID, cases, judge, kept_inputs
from tools.docs.inputs import FORMS

if TYPE_CHECKING:
    from _typeshed import TraceFunction

_INPUT_BYTES_MAX, _KEPT_BYTES_MAX, _KEPT_OF_A_FORMAT = 8192, 1500, 24_000
_ROOMS = ("log_partitioner.input", "log_partitioner.partitioning", "log_partitioner.proof.oracle")
_FOLDERS = tuple(f"/{room.replace('.', '/')}/" for room in _ROOMS)
_PREFIXES = {"none": b"", "confluent": ID, "apicurio8": bytes(8) + b"\7", "glue": GLUE}
_TOKENS = [
    b"\x1f\x8b", b"\x28\xb5\x2f\xfd", ID, GLUE, b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"\xff", b"1e400", b"1E-400",
    b"9007199254740993", b"0.1234567890123456789", b"-0", b"NaN", b'"":', b'{"a":', b"[[[[", b"]]]]", b"null", b"\n",
    b'"entries":[', b'"_envelope":', b'"user":', b'"time":', b"\x80" * 9 + b"\1", b'"stringValue":', b'"intValue":',
    b'"doubleValue":', b'"bytesValue":', b'"arrayValue":{"values":[', b'"kvlistValue":{"values":[', b'"key":',
    b'"value":', b'"log_records":', b'"traceId":', b'"severity_number":', b'{"type":"record"', b'{"type":"array"',
    b'"items":', b'"logicalType":"decimal"', b'"precision":', b'"namespace":', b'"fields":[', b'"name":', b"<34>1 ",
    b"stdout F ", b'[id k="v"]', b"\x0b", b"\xe2\x80\xa8", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x10",
    b"\x80\x94\xeb\xdc\3", b"\xff\x82\xd1\xff\xaf\7", b"\x80\x92\xb8\xc3\x98\xfe\xff\xff\xff\1",
]  # fmt: skip
_NESTED_SHARE, _DEEPER_SHARE = 0.5, 0.7  # of mutations: inside of a message, and of a message in it
_LENGTH_DELIMITED, _WIDTHS = 2, {1: 8, 5: 4}

Field = tuple[bytes, bytes | None]
"""A field of Protobuf: its tag, and its bytes; with None all of it is in the tag."""


def main() -> int:
    """Run; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.fuzz_formats", description=__doc__)
    parser.add_argument("minutes", type=float, help="of CPU, for each format; 0: only keep what was found")
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"of {', '.join(FORMATS)}; default: all")
    parser.add_argument("--folder", type=Path, default=Path(".local/fuzz"), help="of all inputs that were found")
    parser.add_argument("--record", type=Path, help="file to which a line about each format is appended")
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    formats = options.formats or FORMATS
    if options.engine:
        _fuzz(formats[0], options.folder, options.minutes)
    for name in formats:
        folder = options.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate([*kept_inputs(name), *_forms(name)]):
            (folder / f"seed-{number:04}").write_bytes(data)
        if options.minutes and not _run(name, options):
            return 1
        _keep(name, folder)
    return 0


def _run(name: str, options: argparse.Namespace) -> bool:
    """Fuzz a format in a process of its own, which ends if an input fails; gives whether none did."""
    command = [sys.executable, "-m", "tests.property.fuzz_formats", "--engine", str(options.minutes), name]
    command += ["--folder", str(options.folder)]
    said, before = "", resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as engine:
        for line in engine.stderr or ():
            said += line
            sys.stderr.write(line)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    executed = re.findall(r"^#(\d+)", said, re.MULTILINE)
    figures = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "format": name,
        "cpu_minutes": round((after.ru_utime - before.ru_utime) / 60, 1),
        "inputs": int(executed[-1]) if executed else 0,
        "failed": int(engine.returncode != 0),
    }
    if options.record:
        with options.record.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(figures)}\n")
    return engine.returncode == 0


def _fuzz(name: str, folder: Path, minutes: float) -> None:
    """Fuzz in this process, and end it."""
    import atheris  # noqa: PLC0415 - whoever fuzzes installs it

    for one in gc.get_objects():
        if isinstance(one, FunctionType) and (one.__module__ or "").startswith(_ROOMS):
            atheris.instrument_func(one)
    tokens = folder / f"{name}.dict"
    escaped = ("".join(map("\\x{:02x}".format, token)) for token in _TOKENS)
    tokens.write_text("".join(f'"{token}"\n' for token in escaped))
    limits = [f"-max_len={_INPUT_BYTES_MAX}", "-timeout=100", "-rss_limit_mb=2000", "-handle_usr1=1"]

    def mutate(data: bytes, size_max: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if name in ("protobuf", "otlp") and chance.random() < _NESTED_SHARE:
            prefix = next((one for one in _PREFIXES.values() if one and data[HEAD_BYTES:].startswith(one)), b"")
            begin = HEAD_BYTES + len(prefix) + (name == "protobuf" and prefix != b"")
            made = data[:begin] + _mutate_message(data[begin:], chance, atheris.Mutate)
            if len(made) <= size_max:
                return made
        changed: bytes = atheris.Mutate(data, size_max)
        return changed

    def judge_one(data: bytes) -> None:
        if time.process_time() > 60 * minutes:
            os.kill(os.getpid(), signal.SIGUSR1)  # it ends as after its own time
        try:
            judge(name, data)
        except BaseException:
            (folder / f"{name}.failed").write_bytes(data)
            raise

    options = [*limits, f"-dict={tokens}", str(folder / name)]
    atheris.Setup([sys.argv[0], *options], judge_one, custom_mutator=mutate)
    atheris.Fuzz()


def _mutate_message(data: bytes, chance: random.Random, mutate: Callable[[bytes, int], bytes]) -> bytes:
    """Change a field of Protobuf, at any depth; the lengths around it stay right. Any bytes if it has none."""
    try:
        fields = _fields_of(data)
    except (IndexError, KeyError):
        fields = []
    if not fields:
        return mutate(data, len(data) + 16)
    action, at, other = chance.randrange(4), chance.randrange(len(fields)), chance.choice(fields)
    head, content = fields[at]
    if content and chance.random() < _DEEPER_SHARE:
        fields[at] = head, _mutate_message(content, chance, mutate)
    elif action == 0:
        fields.insert(at, other)
    elif action == 1:
        del fields[at]
    elif content is None:
        fields[at] = mutate(head, len(head) + 8), None
    else:
        fields[at] = head, _written([other]) if action == 2 else mutate(content, len(content) + 16)
    return _written(fields)


def _written(fields: list[Field]) -> bytes:
    return b"".join(head if content is None else head + _varint(len(content)) + content for head, content in fields)


def _fields_of(data: bytes) -> list[Field]:
    fields: list[Field] = []
    at = 0
    while at < len(data):
        kind, begin = data[at] & 7, _behind_varint(data, at)
        if kind == _LENGTH_DELIMITED:
            content_at = _behind_varint(data, begin)
            size = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[begin:content_at]))
            end = content_at + size
            fields.append((data[at:begin], data[content_at:end]))
        else:
            end = _behind_varint(data, begin) if kind == 0 else begin + _WIDTHS[kind]
            fields.append((data[at:end], None))
        at = end
    return fields


def _behind_varint(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + _varint(number >> 7)


def _forms(name: str) -> list[bytes]:
    """Return the forms of docs/INPUTS.md as inputs of each case that reads them."""
    reading = [(bytes([case, 0]), one.settings.input.format) for case, one in enumerate(cases(name))]
    forms = [(form.value, form.settings.get("input.format", "json")) for form in FORMS]
    return [head + value for head, format_ in reading for value, form_format in forms if form_format == format_]


def _keep(name: str, folder: Path) -> None:
    """Keep small inputs, the smallest first, each of which runs a step that none before it has run."""
    seen: set[tuple[object, int, int]] = set()
    kept, size = [], 0
    inputs = {path.read_bytes() for path in folder.iterdir()}
    for data in sorted(inputs, key=lambda data: (len(data), data)):
        if HEAD_BYTES <= len(data) <= _KEPT_BYTES_MAX and size + len(data) <= _KEPT_OF_A_FORMAT:
            steps = _steps_of(name, data)
            if not steps <= seen:
                seen |= steps
                kept.append(b85encode(data))
                size += len(data)
    CORPUS.mkdir(exist_ok=True)
    (CORPUS / f"{name}.txt").write_bytes(b"\n".join(kept) + b"\n")
    sys.stderr.write(f"{name}: {len(kept)} of {len(inputs)} inputs kept, {size:,} bytes, {len(seen):,} steps\n")


def _steps_of(name: str, data: bytes) -> set[tuple[object, int, int]]:
    """Judge an input, and return from which line to which it went within the rooms that decide."""
    steps: set[tuple[object, int, int]] = set()

    def enter(entered: FrameType, _event: str, _arg: object) -> TraceFunction | None:
        if not any(folder in entered.f_code.co_filename for folder in _FOLDERS):
            return None
        last = 0

        def follow(frame: FrameType, event: str, _arg: object) -> TraceFunction:
            nonlocal last
            if event == "line":
                steps.add((frame.f_code, last, frame.f_lineno))
                last = frame.f_lineno
            return follow

        return follow

    sys.settrace(enter)
    try:
        judge(name, data)
    finally:
        sys.settrace(None)
    return steps


if __name__ == "__main__":
    sys.exit(main())
