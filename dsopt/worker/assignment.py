"""What a lane is given to run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dsopt.launch.placement import Placement
from dsopt.launch.strangers import Strangers
from dsopt.protocol.run_dir import RunDir
from dsopt.search.history import History
from dsopt.store.attempts import Attempt, Task
from dsopt.store.stored import StoredStudy
from dsopt.study.node_rates import NodeRates
from dsopt.study.space import Candidate
from dsopt.study.trial_attributes import TrialAttributes, node_attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A begun attempt.

    Attributes:
        study: its study; of a comparison, with the spec of this run.
        task: what it runs.
        attempt: what it holds.
        run_dir: where its files go.
        history: what was known when it was chosen.
        strangers: sees other programs on its GPUs.
        placement: the nodes that dsopt itself starts it on; None: this one, or the launcher's choice.
        nodes: the names of the nodes that it runs on; none of a dry run.
        rates: what was measured of its node, if it runs on one alone.
        script: the digest of its script's file, by its name (`script_source`).
        is_first: whether it is the first attempt of its trial.
    """

    study: StoredStudy
    task: Task
    attempt: Attempt
    run_dir: RunDir
    history: History
    strangers: Strangers
    placement: Placement | None = None
    nodes: Sequence[str] = ()
    rates: NodeRates | None = None
    script: Mapping[str, str] = field(default_factory=dict)
    is_first: bool = True

    def place(self, sources: Mapping[str, str]) -> TrialAttributes:
        """Where it runs and of what script, as attributes of its trial; `sources`: digests of what it imports."""
        attrs, digests = TrialAttributes(), {**self.script, **sources}
        if digests:
            attrs["sources"] = json.dumps(digests)
        if self.nodes:
            attrs["ran_on"] = ", ".join(self.nodes)
        return attrs if self.rates is None else attrs | node_attributes(self.rates)

    @property
    def candidate(self) -> Candidate | None:
        """The point of the space that it runs; None: the user's own configuration."""
        return self.task.candidate
