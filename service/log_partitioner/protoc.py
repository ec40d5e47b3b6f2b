"""Schemas of Protobuf as descriptors: the worker and the second opinion have the same compiler, and no more.

Needs the optional group `formats`.
"""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

    from log_partitioner.formats.schema import Schema

_MAIN = "schema.proto"
_COMPILE_S = 60.0
_SCHEMAS_MAX = 256


@lru_cache(_SCHEMAS_MAX)
def compile_schema(schema: Schema) -> FileDescriptorSet:
    """Return the files of a schema, its own last; bytes are what `protoc --include_imports` has made, or a source.

    Blocks for a second: the compiler is a process of its own, as what it reads may end it.

    Raises:
        ValueError: it is no schema.
        RuntimeError: the compiler has ended without a word.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415 - an optional package
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    if isinstance(schema.text, bytes):
        try:
            files = FileDescriptorSet.FromString(schema.text)
        except DecodeError:
            pass  # it is a source
        else:
            return files
    text = schema.text if isinstance(schema.text, str) else schema.text.decode()
    with TemporaryDirectory(prefix="protoc-") as place:
        for name, content in ((_MAIN, text), *schema.references):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"{name} is no name of a file")
            (Path(place) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(place) / path).write_text(content, encoding="utf-8")
        out = Path(place) / "out"
        options = [f"-I{place}", "--include_imports", f"--descriptor_set_out={out}", _MAIN]
        command = [sys.executable, "-m", "grpc_tools.protoc", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)  # noqa: S603
        if done.returncode < 0 or (done.returncode and not done.stderr):
            raise RuntimeError(f"protoc has ended with {done.returncode}")
        if done.returncode:
            lines = done.stderr.replace(f"{place}/", "").splitlines()
            raise ValueError(next((line for line in lines if ".proto:" in line), lines[-1]))
        return FileDescriptorSet.FromString(out.read_bytes())


def find_message(files: FileDescriptorSet, *, name: str | None = None, indexes: tuple[int, ...] = (0,)) -> Descriptor:
    """Return a message by its full name, or by its place in the last file: that in the file, then within the former.

    Raises:
        ValueError: there is none.
    """
    from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415 - an optional package

    try:
        pool = DescriptorPool()
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(name or _name_at(files, indexes))
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"it has no message {name or indexes}: {error}") from error


def _name_at(files: FileDescriptorSet, indexes: tuple[int, ...]) -> str:
    names, messages = [files.file[-1].package], files.file[-1].message_type
    for index in indexes:
        found: DescriptorProto = messages[index]
        names.append(found.name)
        messages = found.nested_type
    return ".".join(filter(None, names))
