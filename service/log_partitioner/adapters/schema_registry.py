"""Asks a schema registry for schemas; the only place that knows its HTTP API.

A schema never changes under its id, so that an answer is kept until others need its room.
"""

from __future__ import annotations

import json
import ssl
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache, partial
from urllib.parse import quote

import msgspec
import urllib3

from log_partitioner.config.registry_settings import RegistrySettings
from log_partitioner.config.settings import Settings
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import Cause, CouldNotTellError, RegistryError, SettingsError, StopError, UnmetError
from log_partitioner.formats.schema import FindSchema, Kind, Schema, SchemaRef

ASK_S = 5.0  # for one schema and its references; well within the time between two polls
WAIT_S = 60.0  # that a job or a tool waits for an answer
AGAIN_S = 1.0  # after a question without an answer; until then nothing is asked
UNKNOWN_S = 30.0  # for a registry's followers to learn of a new schema
AGAIN_UNKNOWN_S = 300.0  # before the next question for a schema that was given up
CACHE_SIZE_MAX = 64 * 1024 * 1024
ANSWER_BYTES_MAX = 8 * 1024 * 1024
_REFERENCES_MAX = 200  # of a schema, references of references included
_UNKNOWN_MAX = 1000
_PART_BYTES = 64 * 1024
_OK, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 200, 401, 403, 404
_NO_SCHEMA = (40401, 40402, 40403)  # no such subject, version, id: any other 404 is of a wrong address
_PATHS = {"id": "/schemas/ids/{}", "guid": "/schemas/guids/{}", "global_id": "/ids/globalIds/{}?dereference=true"}


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Answer(msgspec.Struct):
    schema: str
    references: list[_Reference] | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode


class _NotFoundError(Exception):
    """The registry knows nothing of that name."""


class SchemaRegistry:
    """A registry's schemas; used by one thread. `trouble` says why the last question was not answered."""

    def __init__(self, settings: RegistrySettings, now_s: Callable[[], float] = time.monotonic) -> None:
        """Make it; asks nothing.

        Raises:
            StopError: a certificate or its key cannot be read.
        """
        assert settings.url is not None, "registry.url is set"
        self.trouble: str | None = None
        self._url = settings.url.rstrip("/")
        self._now_s = now_s
        self._kept: OrderedDict[SchemaRef, Schema] = OrderedDict()
        self._size = 0
        self._silent: RegistryError | None = None
        self._silent_until_s = 0.0
        self._unknown: OrderedDict[SchemaRef, tuple[float, float]] = OrderedDict()  # since when, and when asked last
        self._headers = _headers(settings)
        self._pool = urllib3.PoolManager(ssl_context=_tls(settings), retries=False)

    def check(self, kind: Kind = "id") -> None:
        """Ask for a schema that no registry has, by this kind of name.

        Raises:
            UnmetError: there is no answer now.
            SettingsError: the registry refuses us.
        """
        try:
            self._get(_PATHS[kind].format(0), Deadline.after(ASK_S, self._now_s))
        except _NotFoundError:
            pass
        except RegistryError as error:
            if error.cause == "refused":
                raise SettingsError([str(error)]) from error
            raise UnmetError(str(error)) from error
        self.trouble = None

    def find(self, ref: SchemaRef, *, deadline: Deadline) -> Schema | None:
        """Return a schema; None if the registry has not known it for UNKNOWN_S. Blocks for ASK_S at most.

        Raises:
            RegistryError: there is no answer, or the registry does not know the schema yet: ask again.
        """
        if ref in self._kept:
            self._kept.move_to_end(ref)
            return self._kept[ref]
        now_s = self._now_s()
        since_s, asked_s = self._unknown.get(ref, (now_s, now_s))
        is_given_up = asked_s - since_s >= UNKNOWN_S
        if is_given_up and now_s - asked_s < AGAIN_UNKNOWN_S:
            return None
        if self._silent is not None and now_s < self._silent_until_s:
            raise RegistryError(str(self._silent), cause=self._silent.cause)
        self._silent = None
        try:
            schema = self._fetch(ref, deadline.at_most(ASK_S))
        except _NotFoundError as error:
            if not is_given_up and now_s - asked_s > UNKNOWN_S * 2:
                since_s = now_s  # after so long without a question it may have come and gone
            self._unknown[ref] = since_s, now_s
            while len(self._unknown) > _UNKNOWN_MAX:
                self._unknown.popitem(last=False)
            if now_s - since_s < UNKNOWN_S:
                self.trouble = f"schema registry {self._url} does not know {ref} yet: {error}"
                raise RegistryError(self.trouble, cause="unknown") from error
            self.trouble = None
            return None
        except RegistryError as error:
            self.trouble = str(error)
            self._silent, self._silent_until_s = error, self._now_s() + AGAIN_S
            raise
        self.trouble = None
        self._unknown.pop(ref, None)
        self._keep(ref, schema)
        return schema

    def _keep(self, ref: SchemaRef, schema: Schema) -> None:
        self._kept[ref] = schema
        self._size += schema.size
        while self._size > CACHE_SIZE_MAX:
            self._size -= self._kept.popitem(last=False)[1].size

    def _fetch(self, ref: SchemaRef, deadline: Deadline) -> Schema:
        body = self._get(_PATHS[ref.kind].format(ref.value), deadline)
        if ref.kind == "global_id":  # the answer is the schema itself
            try:
                return Schema(body.decode())
            except UnicodeDecodeError as error:
                raise self._failure("its answer is no text") from error
        answer = self._read(body)
        references: dict[str, str] = {}
        self._refer(answer, set(), references, deadline)
        return Schema(answer.schema, tuple(references.items()))

    def _refer(self, answer: _Answer, seen: set[str], found: dict[str, str], deadline: Deadline) -> None:
        """Find the schemas that a schema refers to, the innermost first."""
        for one in answer.references or ():
            if one.name in seen:
                continue
            seen.add(one.name)
            if len(seen) > _REFERENCES_MAX:
                raise self._failure(f"a schema refers to more than {_REFERENCES_MAX} others")
            path = f"/subjects/{quote(one.subject, safe='')}/versions/{one.version}"
            inner = self._read(self._get(path, deadline))
            self._refer(inner, seen, found, deadline)
            found[one.name] = inner.schema

    def _read(self, body: bytes) -> _Answer:
        try:
            return _decode_answer(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise self._failure("its answer holds no schema: is registry.url the address of its API?") from error

    def _get(self, path: str, deadline: Deadline) -> bytes:
        try:
            status, body = self._ask(path, deadline)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._failure(f"{type(error).__name__}: {error}") from error
        if status == _OK:
            return body
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            raise self._failure(f"it refuses us ({status}): see registry.user, password, token", cause="refused")
        if status == _NOT_FOUND and (message := _no_schema(body)) is not None:
            raise _NotFoundError(message)
        raise self._failure(f"it answers {status} to {path}")

    def _ask(self, path: str, deadline: Deadline) -> tuple[int, bytes]:
        timeout = urllib3.Timeout(total=deadline.timeout_s())
        body = b""
        with self._pool.request(
            "GET", self._url + path, headers=self._headers, timeout=timeout, redirect=False, preload_content=False
        ) as answer:
            while part := answer.read1(_PART_BYTES):
                body += part
                if deadline.has_passed() or len(body) > ANSWER_BYTES_MAX:  # each part by itself may come in time
                    message = f"its answer takes longer than {ASK_S:g} s, or has more than {ANSWER_BYTES_MAX} bytes"
                    raise self._failure(message)
        return answer.status, body

    def _failure(self, message: str, *, cause: Cause = "unanswered") -> RegistryError:
        return RegistryError(f"schema registry {self._url}: {message}", cause=cause)


def schema_finder(settings: Settings, *, unknown_after_s: float = 0.0) -> FindSchema | None:
    """Return how jobs and tools find schemas: each waits for an answer, and so long for one that is not known yet.

    It can be pickled; None without a registry.
    """
    return None if settings.registry.url is None else partial(_wait_for, settings.registry, unknown_after_s)


_registry_of = lru_cache(SchemaRegistry)


def _wait_for(settings: RegistrySettings, unknown_after_s: float, ref: SchemaRef) -> Schema | None:
    began_s = time.monotonic()
    deadline = Deadline.after(WAIT_S, time.monotonic)
    while True:
        try:
            return _registry_of(settings).find(ref, deadline=deadline)
        except RegistryError as error:
            if error.cause == "unknown" and time.monotonic() - began_s >= unknown_after_s:
                return None
            if error.cause == "refused" or deadline.has_passed():
                raise CouldNotTellError(str(error)) from error
            time.sleep(AGAIN_S)


def _no_schema(body: bytes) -> str | None:
    """Return the registry's sentence if a 404 says that there is no such schema; None if it says anything else."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict):
        return None
    is_told = answer.get("error_code") in _NO_SCHEMA or answer.get("name") == "ArtifactNotFoundException"  # Apicurio's
    return str(answer.get("message")) if is_told else None


def _headers(settings: RegistrySettings) -> dict[str, str]:
    accept = {"Accept": "application/vnd.schemaregistry.v1+json, application/json, */*"}
    if settings.token is not None:
        return accept | {"Authorization": f"Bearer {settings.token.get_secret_value()}"}
    if settings.user is None:
        return accept
    password = "" if settings.password is None else settings.password.get_secret_value()
    return accept | {"Authorization": f"Basic {b64encode(f'{settings.user}:{password}'.encode()).decode()}"}


def _tls(settings: RegistrySettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.certificate_file is not None:
            context.load_cert_chain(settings.certificate_file, settings.key_file, password="")
    except OSError as error:
        files = f"{settings.ca_file}, {settings.certificate_file}, {settings.key_file}"
        raise StopError(f"registry: a file of certificates or its key cannot be used ({files}): {error}") from error
    return context
