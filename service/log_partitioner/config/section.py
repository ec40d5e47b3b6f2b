"""The types of which the sections of settings are made."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, WithJsonSchema
from pydantic.config import JsonDict

from log_partitioner.config.units import (
    bytes_of,
    list_of,
    moment_of,
    object_of,
    property_of,
    seconds_of,
    start_of,
    zone_of,
)

PositiveInt = Annotated[int, Field(gt=0)]
# What stands in the JSON schema, for the pages and the chart: a text with a unit is taken, too.
SECONDS: JsonDict = {"unit": "seconds"}
BYTES: JsonDict = {"unit": "bytes"}
TAKES_TIME, TAKES_SIZE = BeforeValidator(seconds_of), BeforeValidator(bytes_of)
NotNegativeSeconds = Annotated[float, Field(ge=0, allow_inf_nan=False, json_schema_extra=SECONDS), TAKES_TIME]
PositiveSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False, json_schema_extra=SECONDS), TAKES_TIME]
PositiveBytes = Annotated[int, Field(gt=0, json_schema_extra=BYTES), TAKES_SIZE]
StartAt = Annotated[Literal["beginning", "fail"] | int, BeforeValidator(start_of), WithJsonSchema({"type": "string"})]
Moment = Annotated[datetime, BeforeValidator(moment_of), WithJsonSchema({"type": "string"})]
Zone = Annotated[ZoneInfo, BeforeValidator(zone_of), WithJsonSchema({"type": "string"})]
Names = Annotated[tuple[str, ...], BeforeValidator(list_of)]
_PropertyText = BeforeValidator(property_of)
Properties = Annotated[dict[str, Annotated[str, _PropertyText]], BeforeValidator(object_of)]
SecretProperties = Annotated[dict[str, Annotated[SecretStr, _PropertyText]], BeforeValidator(object_of)]


class Section(BaseModel):
    """A frozen group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")
