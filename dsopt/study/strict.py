"""What every section of a study has in common: it refuses unknown keys, and never changes."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A section of a study."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
