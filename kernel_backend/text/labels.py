"""Format tags and note of an experiment as text."""

from __future__ import annotations

from kernel_backend.model.experiment import Experiment


def label_lines(experiment: Experiment) -> list[str]:
    """Return the lines `tags: baseline, paper` and `noted: ...`, each only if the experiment has tags or a note."""
    tags = [f"tags: {', '.join(experiment.tags)}"] if experiment.tags else []
    first, *more = experiment.note.splitlines() or [""]
    noted = [f"noted: {first}", *(f"       {line}" for line in more)] if first else []
    return [*tags, *noted]
