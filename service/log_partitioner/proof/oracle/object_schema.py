"""The schema in an object's header, and the exact schema of each reference, a projection of it.

Schemas and projections, which thousands of references share, are remembered within a bound.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from log_partitioner.formats.projection import project
from log_partitioner.proof.oracle.expected_schema import Type, is_covered_by, paths_of
from log_partitioner.proof.oracle.published_schema import PublishedSchema

if TYPE_CHECKING:
    from log_partitioner.proof.oracle.json_text import Parse

HEADERS_MAX = 256
EXACT_MAX = 2048


class HeaderSchema(NamedTuple):
    """The schema by which the rows of an object are decoded and restored."""

    fingerprint: str
    json: Any
    published: PublishedSchema


class ExactSchema(NamedTuple):
    """The schema of one reference; `problems` say why an object with this header may not hold it."""

    type: Type
    names: frozenset[str]
    paths: frozenset[tuple[str, ...]]
    problems: tuple[str, ...]


class ObjectSchemas:
    """Schemas of headers by their text, and exact ones by projection."""

    def __init__(self, parse: Parse) -> None:
        self._parse = parse
        self.header = lru_cache(HEADERS_MAX)(self._header)
        self._exact: dict[tuple[str, bytes], ExactSchema] = {}

    def exact(self, header: HeaderSchema, projection: Any) -> ExactSchema:
        """Return the exact schema that a projection makes of a header's.

        Raises:
            ValueError: it is no projection of it.
        """
        key = (header.fingerprint, msgspec.json.encode(projection))
        exact = self._exact.get(key)
        if exact is None:
            if len(self._exact) >= EXACT_MAX:
                self._exact.clear()
            exact = self._exact[key] = self._project(header, projection)
        return exact

    def _header(self, text: str) -> HeaderSchema:
        published = PublishedSchema(text, self._parse)
        return HeaderSchema(hashlib.sha256(text.encode()).hexdigest(), json.loads(text), published)

    def _project(self, header: HeaderSchema, projection: Any) -> ExactSchema:
        own = header.published
        if projection is not None:
            text = json.dumps(project(header.json, projection))
            own = PublishedSchema(text, self._parse, keeps_names=True)
        problems = [problem for problem in own.problems if problem not in header.published.problems]
        problems += [f"{path}: two fields of this original name" for path in own.beside]
        if not is_covered_by(own.type, header.published.type):
            problems.append("the pack's schema changes a type of the reference's")
        return ExactSchema(own.type, own.names, frozenset(paths_of(own.type)), tuple(problems))
