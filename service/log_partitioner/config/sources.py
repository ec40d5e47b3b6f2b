"""Reads settings from their sources; the only reader of the environment. Reports all wrong names and values at once.

Sources, the first wins: arguments, environment (`LOGP_` for a worker, nested by `__`), a TOML file named by
`LOGP_CONFIG_FILE`, secret files (a directory named by `LOGP_SECRETS_DIR`; a file `logp_s3__secret_key` holds that
setting), defaults. Knows no setting by name. Each problem is a sentence that names settings and never repeats a value.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from log_partitioner.config.section import Section, object_of

SettingPath = tuple[str, ...]
_NOT_SETTINGS = ("CONFIG_FILE", "SECRETS_DIR")
_OF_TESTS = "TEST_"
_LIKENESS = 0.75  # of two names, from which one may have been meant by the other
# Sentences for the errors of pydantic; `test_config.py` asks every setting for an error that has none.
_SENTENCES: Mapping[str, str] = {
    "missing": "is not set",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a number",
    "string_type": "must be text",
    "string_too_short": "must have at least {min_length} character(s)",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "path_type": "must be the path of a file or directory",
    "tuple_type": "must be a list",
    "too_short": "must have at least {min_length} element(s)",
    "extra_forbidden": "names no setting",
    "model_type": "must be an object: names with values",
    "dict_type": "must be an object: names with values",
    "value_error": "{error}",
}


class SourcedSettings(Section):
    """Settings of an environment, a file and secret files, whose names begin with `prefix`; see `read_settings`."""

    prefix: ClassVar[str]


S = TypeVar("S", bound=SourcedSettings)


class SettingsRead(NamedTuple, Generic[S]):
    """Settings with their problems; each setting in `doubtful`, by both its names, has a stand-in for its value."""

    settings: S
    problems: list[str]
    doubtful: frozenset[str]

    def with_rules(self, broken: Iterable[str]) -> list[str]:
        """Return all problems: also the rules that are broken, unless a stand-in may have broken them."""
        return [*self.problems, *(rule for rule in broken if not any(name in rule for name in self.doubtful))]


def variable_of(path: SettingPath, *, prefix: str) -> str:
    """Name the environment variable of a setting."""
    return prefix + "__".join(path).upper()


def read_settings(kind: type[S], **arguments: object) -> SettingsRead[S]:
    """Read settings from their sources; whatever is wrong, the rules between the good ones can still be judged."""
    sources = _Sources(kind)
    sources.take_all(arguments)
    fields = dict(_fields(kind))
    try:
        return SettingsRead(kind.model_validate(sources.values), sources.problems, frozenset())
    except ValidationError as error:
        wrong = [(_setting_of(problem["loc"], fields), problem) for problem in error.errors()]
    problems, doubtful = list(sources.problems), set()
    for path, problem in wrong:
        if problem["type"] != "missing" or sources.are_complete:
            problems.append(_sentence(path, problem, fields[path], kind.prefix))
        if not sources.leave_out(path, problem["loc"][len(path) :]):
            sources.replace(path, fields[path])
            doubtful |= {".".join(path), variable_of(path, prefix=kind.prefix)}
    return SettingsRead(kind.model_validate(sources.values), problems, frozenset(doubtful))


class _Sources:
    """Gathers values by section and name; a name that belongs to no setting becomes a problem."""

    def __init__(self, kind: type[SourcedSettings]) -> None:
        self.problems: list[str] = []
        self.are_complete = True
        self._prefix = kind.prefix
        self._sections = {name: model for name, field in kind.model_fields.items() if (model := _section_of(field))}
        self._fields = dict(_fields(kind))
        self.values: dict[str, Any] = {name: {} for name in self._sections}

    def take_all(self, arguments: Mapping[str, object]) -> None:
        """Take the weakest source first, so that later ones win."""
        if directory := os.environ.get(f"{self._prefix}SECRETS_DIR"):
            self._take_variables(self._secrets(Path(directory)), f"file in {self._prefix}SECRETS_DIR: ")
        if file := os.environ.get(f"{self._prefix}CONFIG_FILE"):
            self._take_tree(self._toml(Path(file)), f"{self._prefix}CONFIG_FILE: ")
        self._take_variables(sorted(os.environ.items()), "")
        self._take_tree(arguments, "")

    def leave_out(self, path: SettingPath, inside: tuple[int | str, ...]) -> bool:
        """Leave one name out of an object, so that the others are still judged; returns whether that is all."""
        is_object = bool(path[1:] and inside and isinstance(inside[0], str))  # a number is the place in a list
        values = object_of(self.values[path[0]].get(path[-1])) if is_object else None
        if not isinstance(values, dict):
            return False
        self.values[path[0]][path[-1]] = {name: value for name, value in values.items() if name != inside[0]}
        return True

    def replace(self, path: SettingPath, field: FieldInfo) -> None:
        """Put the default in the place of a value, or the example if the setting has no default."""
        place = self.values[path[0]] if path[1:] else self.values
        place.pop(path[-1], None)
        if field.is_required():
            assert field.examples, f"{path} has neither default nor example"
            place[path[-1]] = field.examples[0]

    def _secrets(self, directory: Path) -> Iterator[tuple[str, str]]:
        """Yield name and text of each file; one of a Kubernetes volume is behind links."""
        if not directory.is_dir():
            self._miss(f"{self._prefix}SECRETS_DIR names no directory: {directory}")
            return
        for file in sorted(directory.iterdir()):
            if file.name.upper().startswith(self._prefix) and file.is_file():
                yield file.name, file.read_text(encoding="utf-8").strip()

    def _toml(self, file: Path) -> Mapping[str, object]:
        try:
            return tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            self._miss(f"{self._prefix}CONFIG_FILE names no file that can be read: {file}: {error.strerror}")
        except ValueError as error:  # not TOML, or not UTF-8
            self._miss(f"{self._prefix}CONFIG_FILE is not TOML: {file}: {error}")
        return {}

    def _miss(self, problem: str) -> None:
        self.problems.append(problem)
        self.are_complete = False

    def _take_variables(self, variables: Iterable[tuple[str, str]], place: str) -> None:
        """Take the variables that begin with the prefix, in any case."""
        for variable, value in variables:
            name = variable.upper().removeprefix(self._prefix)
            if name == variable.upper() or name in _NOT_SETTINGS or name.startswith(_OF_TESTS):
                continue
            section, _, rest = name.lower().partition("__")
            if section in self._sections and not rest:
                self._take_section(section, value, place + variable)
            else:
                self._take((section, rest) if rest else (section,), value, place + variable)

    def _take_section(self, section: str, text: str, name: str) -> None:
        try:
            values = object_of(text)
        except ValueError as error:
            self.problems.append(f"{name} {error}")
        else:
            assert isinstance(values, dict), "object_of gives an object for a text"
            self._take_tree({section: values}, f"{name}: ")

    def _take_tree(self, tree: Mapping[str, object], place: str) -> None:
        for name, value in tree.items():
            if name not in self._sections or not isinstance(value, Mapping):
                self._take((name,), value, f"{place}{name}")
                continue
            for setting, given in value.items():
                self._take((name, setting), given, f"{place}{name}.{setting}")

    def _take(self, path: SettingPath, value: object, name: str) -> None:
        if path in self._fields:
            place = self.values[path[0]] if path[1:] else self.values
            place[path[-1]] = value
        elif path[0] in self._sections and not path[1:]:
            self.problems.append(f"{name} must be a section with settings in it")
        else:
            self.problems.append(f"{name} names no setting{self._meant(path, name)}")

    def _meant(self, path: SettingPath, name: str) -> str:
        """Say which setting comes nearest, in the form of the name that was given."""
        names = {"__".join(known): known for known in self._fields}
        like = get_close_matches("__".join(path), names, n=1, cutoff=_LIKENESS)
        if not like:
            return ""
        is_variable = self._prefix in name.rpartition(": ")[2].upper()
        known = names[like[0]]
        return f": did you mean {variable_of(known, prefix=self._prefix) if is_variable else '.'.join(known)}?"


def _fields(kind: type[BaseModel]) -> Iterator[tuple[SettingPath, FieldInfo]]:
    """Yield every setting by its path."""
    for name, field in kind.model_fields.items():
        section = _section_of(field)
        if section is None:
            yield (name,), field
        else:
            yield from (((name, *path), inner) for path, inner in _fields(section))


def _section_of(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _setting_of(place: tuple[int | str, ...], fields: Mapping[SettingPath, FieldInfo]) -> SettingPath:
    """Return the setting that holds a place of pydantic's."""
    path = tuple(str(part) for part in place)
    return path[:1] if path[:1] in fields else path[:2]


def _sentence(path: SettingPath, problem: Any, field: FieldInfo, prefix: str) -> str:
    """Say what is wrong with a value, by the name and the variable of its setting."""
    inside = problem["loc"][len(path) :]
    names = (part if isinstance(part, str) else f"element {part + 1}" for part in inside)
    which = f": {'.'.join(names)}" if inside else ""
    said = _SENTENCES.get(problem["type"], "is no value that it can have").format_map(problem.get("ctx", {}))
    variable = variable_of(path, prefix=prefix)
    if problem["type"] != "missing":
        return f"{'.'.join(path)} ({variable}){which} {said}"
    like = get_close_matches(variable, (name for name in os.environ if not name.startswith(prefix)), n=1, cutoff=0.8)
    meant = f" ({like[0]} is: its prefix must be {prefix})" if like else ""
    return f"{variable} {said}{meant}: {field.description}"


def aws_region() -> str | None:
    """Return the region that AWS gives to pods; boto3 reads only the second variable, the JVM's SDK only the first."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
