"""Where settings come from: the only reader of the environment. Refuses all wrong names and values at once.

Sources, the first wins: environment (`LOGP_` for a worker, nested by `__`), a TOML file named by `LOGP_CONFIG_FILE`,
secret files (a directory named by `LOGP_SECRETS_DIR`; a file `logp_s3__secret_key` holds that setting), defaults.
Knows no setting by name.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    NestedSecretsSettingsSource,
    PydanticBaseSettingsSource,
    TomlConfigSettingsSource,
)
from pydantic_settings import SettingsError as UnreadableSettingsError

from service.errors import SettingsError

S = TypeVar("S", bound="SourcedSettings")

_NOT_SETTINGS = ("CONFIG_FILE", "SECRETS_DIR")
_JSON_EXAMPLES: dict[object, str] = {tuple: '["a", "b"]', dict: '{"name": "value"}'}


class SourcedSettings(BaseSettings):
    """Settings of an environment, a file and secret files, whose names begin with `env_prefix`; see `read_settings`."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: arguments, environment, file, secret files."""
        del dotenv_settings
        prefix = settings_cls.model_config["env_prefix"]
        sources = [init_settings, env_settings]
        if file := os.environ.get(f"{prefix}CONFIG_FILE"):
            sources.append(TomlConfigSettingsSource(settings_cls, Path(file)))
        if directory := os.environ.get(f"{prefix}SECRETS_DIR"):
            sources.append(NestedSecretsSettingsSource(file_secret_settings, secrets_dir=directory))
        return tuple(sources)


def read_settings(kind: type[S], **arguments: object) -> tuple[S, list[str]]:
    """Return settings from their sources, and a problem for each environment variable that matches no setting.

    Raises:
        SettingsError: with everything that is wrong, where a setting is.
    """
    prefix = kind.model_config["env_prefix"]
    absent = _find_absent_sources(os.environ, prefix)
    if absent:
        raise SettingsError(absent)
    problems = _find_wrong_variables(os.environ, prefix, kind)
    try:
        return kind(**arguments), problems  # type: ignore[arg-type]
    except ValidationError as error:
        raise SettingsError([*(_sentence(problem, prefix) for problem in error.errors()), *problems]) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError([f"{prefix}CONFIG_FILE is not TOML: {error}", *problems]) from error
    except UnreadableSettingsError as error:
        raise SettingsError(problems or [str(error)]) from error


def variable_of(path: tuple[str, ...], *, prefix: str) -> str:
    """Name the environment variable of a setting."""
    return prefix + "__".join(path).upper()


def _sentence(problem: object, prefix: str) -> str:
    assert isinstance(problem, dict), "pydantic describes problems as dicts"
    path = tuple(str(part) for part in problem["loc"])
    return f"{'.'.join(path)} ({variable_of(path, prefix=prefix)}): {problem['msg']}"


def _find_absent_sources(environ: Mapping[str, str], prefix: str) -> list[str]:
    """Find sources that are named but not there: they must not be silent defaults."""
    file, directory = environ.get(f"{prefix}CONFIG_FILE"), environ.get(f"{prefix}SECRETS_DIR")
    problems = []
    if file and not Path(file).is_file():
        problems.append(f"{prefix}CONFIG_FILE names no file: {file}")
    if directory and not Path(directory).is_dir():
        problems.append(f"{prefix}SECRETS_DIR names no directory: {directory}")
    return problems


def _find_wrong_variables(environ: Mapping[str, str], prefix: str, settings: type[BaseModel]) -> list[str]:
    """Find variables that name no setting, and those of lists and objects that are not JSON.

    Pydantic itself finds unknown names inside a section; it does not say which variable is not JSON.
    """
    problems = []
    for variable, path, value in _variables(environ, prefix):
        field = settings.model_fields.get(path[0])
        section = _section_of(field)
        if field is None or (len(path) > 1 and section is None):
            problems.append(f"{variable} names no setting")
        elif section is not None and path[1:]:
            kind = _kind_of(section.model_fields.get("__".join(path[1:])))
            if kind in _JSON_EXAMPLES and not _is_json(value):
                problems.append(f"{variable} is not JSON, such as {_JSON_EXAMPLES[kind]}")
    return problems


def _variables(environ: Mapping[str, str], prefix: str) -> Iterator[tuple[str, list[str], str]]:
    """Yield name, path and value of every variable with our prefix, in any case, as pydantic reads them."""
    for variable, value in sorted(environ.items()):
        name = variable.upper().removeprefix(prefix)
        if name != variable.upper() and name not in _NOT_SETTINGS and not name.startswith("TEST_"):
            yield variable, name.lower().split("__"), value


def _section_of(field: FieldInfo | None) -> type[BaseModel] | None:
    kind = field.annotation if field is not None else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _kind_of(field: FieldInfo | None) -> object:
    return get_origin(field.annotation) if field is not None else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def aws_region() -> str | None:
    """Return what pods on AWS are given; boto3 reads the second only, the JVM's SDK the first only."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
