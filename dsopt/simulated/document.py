"""A scenario as a JSON document and back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dsopt.simulated.cluster import Scenario
from dsopt.simulated.model import Cluster, Device, Model, Traits


def as_document(scenario: Scenario) -> dict[str, Any]:
    """The scenario in JSON's own types."""
    return asdict(scenario)


def from_document(content: Mapping[str, Any]) -> Scenario:
    """The scenario that `as_document` took apart, also after JSON has made lists of tuples.

    Raises:
        TypeError: a field is missing, or there is one too many.
    """
    cluster = {**content["cluster"], "device": Device(**content["cluster"]["device"])}
    traits: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in content["traits"].items()
    }
    own = {**content, "model": Model(**content["model"]), "cluster": Cluster(**cluster), "traits": Traits(**traits)}
    return Scenario(**own)
