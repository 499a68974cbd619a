"""What every section of a study has in common: it refuses unknown keys, and never changes."""

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class Strict(BaseModel):
    """A section of a study."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _takes_no_answer_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """To Python, `true` is 1."""
        kind = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and kind in (int, float, int | None, float | None):
            raise ValueError("expected a number, not true or false")
        return value
