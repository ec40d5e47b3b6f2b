"""Schemas of Protobuf as descriptors: the worker and the second opinion have the same compiler, and no more.

Needs the optional group `formats`.
"""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from log_partitioner.errors import RegistryError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from log_partitioner.formats.schema import Schema

_COMPILE_S = 60.0
_PROTOS = Path(__file__).with_name("protos")
_SCHEMAS_MAX = 256
_KNOWN = ("Timestamp", "Duration", "Struct", "Value", "ListValue")
WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")


class CompiledSchema:
    """The messages of a schema. `knows_types`: it gives Google's well-known types the meaning that they have."""

    def __init__(self, files: bytes) -> None:
        """Read files as `protoc --include_imports` writes them, the schema's own last.

        Raises:
            ValueError: they are none, or do not fit together.
        """
        from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415 - an optional package
        from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415
        from google.protobuf.message import DecodeError  # noqa: PLC0415

        self._pool = DescriptorPool()
        try:
            self._files = FileDescriptorSet.FromString(files).file
            for file in self._files:
                self._pool.Add(file)
            self.knows_types = all(map(self._is_known, (*_KNOWN, *(f"{kind}Value" for kind in WRAPPED))))
        except (DecodeError, TypeError) as error:
            raise ValueError(str(error)) from error

    def message(self, *, name: str | None = None, indexes: tuple[int, ...] = (0,)) -> Descriptor:
        """Return a message by its full name, or by its place in the last file: that in the file, then within another.

        Raises:
            ValueError: there is none.
        """
        try:
            return self._pool.FindMessageTypeByName(name or self._name_at(indexes))
        except (KeyError, IndexError) as error:
            raise ValueError(f"it has no message {name or indexes}: {error}") from error

    def _name_at(self, indexes: tuple[int, ...]) -> str:
        names, messages = [self._files[-1].package], self._files[-1].message_type
        for index in indexes:
            names.append(messages[index].name)
            messages = messages[index].nested_type
        return ".".join(filter(None, names))

    def _is_known(self, name: str) -> bool:
        from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2  # noqa: PLC0415

        try:
            found = self._pool.FindMessageTypeByName(f"google.protobuf.{name}")
        except KeyError:
            return True
        modules = (duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
        return any(_form(found) == _form(getattr(one, name).DESCRIPTOR) for one in modules if hasattr(one, name))


def _form(message: Descriptor) -> list[tuple[object, ...]]:
    return [(field.number, field.name, field.type, _of(field)) for field in message.fields]


def _of(field: FieldDescriptor) -> object:
    inner = field.message_type
    if inner is None:
        return None
    return _form(inner) if inner.GetOptions().map_entry else inner.full_name


@lru_cache(_SCHEMAS_MAX)
def compile_schema(schema: Schema) -> CompiledSchema:
    """Compile a schema; bytes are what `protoc --include_imports --descriptor_set_out` has made, or a source.

    Blocks for a second: the compiler is a process of its own, as what it reads may end it.

    Raises:
        ValueError: it is no schema.
        RegistryError: this machine cannot compile it now.
    """
    if isinstance(schema.text, bytes):
        try:
            return CompiledSchema(schema.text)
        except ValueError:
            pass  # it is a source
    text = schema.text if isinstance(schema.text, str) else schema.text.decode()
    names = [name for name, _ in schema.references]
    for name in names:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or not name.endswith(".proto"):
            raise ValueError(f"{name} is no name of a file")
    main = "schema.proto"
    while main in names:
        main = f"_{main}"
    try:
        return CompiledSchema(_compile(main, {**dict(schema.references), main: text}))
    except (OSError, subprocess.SubprocessError) as error:
        raise RegistryError(f"a schema cannot be compiled: {type(error).__name__}: {error}") from error


def _built_in() -> list[Path]:
    """Return folders of files that serializers of a registry take for part of Protobuf: they register none of them."""
    google = find_spec("google.type")
    assert google is not None, "googleapis-common-protos is of the group formats"
    return [_PROTOS, *(Path(place).parent.parent for place in google.submodule_search_locations or ())]


def _compile(main: str, sources: dict[str, str]) -> bytes:
    with TemporaryDirectory(prefix="protoc-") as place:
        for name, content in sources.items():
            path = Path(place) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        out = Path(place) / "out"
        options = [
            *(f"-I{one}" for one in (place, *_built_in())),
            "--include_imports",
            f"--descriptor_set_out={out}",
            main,
        ]
        command = [sys.executable, "-m", "grpc_tools.protoc", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)  # noqa: S603
        if done.returncode == 0:
            return out.read_bytes()
        lines = done.stderr.replace(f"{place}/", "").splitlines()
        said = next((line for line in lines if ".proto:" in line), None)  # of the sources; any other is of the machine
        if said is None or done.returncode < 0:
            raise RegistryError(f"a schema cannot be compiled: protoc has ended with {done.returncode}: {lines[-1:]}")
        raise ValueError(said)
