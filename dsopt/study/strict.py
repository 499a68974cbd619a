"""What every section of a study has in common: unknown keys are refused, and nothing changes."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A section of a study."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
