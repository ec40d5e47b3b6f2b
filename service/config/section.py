"""What the sections of settings are made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveSeconds = Annotated[float, Field(gt=0)]
PositiveInt = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """A frozen group of settings; an unknown name is an error, not a silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")
