"""What Prometheus reads at `/metrics`."""

from dsopt.web.overview import Shown

_STATES = ("created", "baseline", "searching", "confirming", "finished", "stopped")


def metrics_text(shown: Shown) -> str:
    """The overview in Prometheus' text format, version 0.0.4."""
    lines = _metric(
        "dsopt_study_state", "1 for the state that a study has.",
        [({"study": s.name, "state": state}, float(s.state == state)) for s in shown.studies for state in _STATES],
    )  # fmt: skip
    lines += _metric(
        "dsopt_study_failed_runs", "Failed runs of a study.",
        [({"study": s.name}, float(s.failed)) for s in shown.studies],
    )  # fmt: skip
    lines += _metric(
        "dsopt_study_factor", "How many times as good as the user's own the confirmed best is, by the study's metric.",
        [({"study": s.name}, s.factor) for s in shown.studies if s.factor is not None],
    )  # fmt: skip
    lines += _metric(
        "dsopt_study_batch_factor", "How many times as large the global batch of the confirmed best is.",
        [({"study": s.name}, s.batch_times) for s in shown.studies if s.factor is not None],
    )  # fmt: skip
    lines += _metric(
        "dsopt_study_runs_running", "Runs of a study that go on, those of silent workers left out.",
        [({"study": s.name}, float(shown.runs_of(s.name))) for s in shown.studies],
    )  # fmt: skip
    lines += _metric("dsopt_runs_running", "Runs that go on.", [({}, float(len(shown.running)))])
    lines += _metric(
        "dsopt_worker_silent_seconds", "Age of a worker's last heartbeat.",
        [({"node": w.node, "pid": str(w.pid)}, w.silent_seconds) for w in shown.workers],
    )  # fmt: skip
    return "\n".join(lines) + "\n"


def _metric(name: str, about: str, values: list[tuple[dict[str, str], float]]) -> list[str]:
    lines = [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
    for labels, value in values:
        named = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{named}}} {value:g}" if named else f"{name} {value:g}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
