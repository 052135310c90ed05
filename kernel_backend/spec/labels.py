"""Read the options that label a new experiment: --name, --note and --tag."""

from __future__ import annotations

from argparse import Namespace

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.experiment import LONGEST_NAME, LONGEST_NOTE
from kernel_backend.model.labels import Labels, edited_tags
from kernel_backend.model.record import Value


def labels_of(options: Namespace) -> Labels:
    """Return the labels that parsed options give; raise InvalidRequest for an invalid tag or a text that is too long.

    A value of `--tag` may hold several tags, as in `baseline,paper`.
    """
    name, note = getattr(options, "name", None), getattr(options, "note", None) or ""
    for flag, text, longest in (("--name", name or "", LONGEST_NAME), ("--note", note, LONGEST_NOTE)):
        if len(text) > longest:
            raise InvalidRequest(f"{flag} {text[:50]}...: it has {len(text)} characters; write {longest} at most")
    given = [tag.strip() for text in getattr(options, "tag", None) or () for tag in text.split(",") if tag.strip()]
    try:
        return Labels(name, note, edited_tags((), given))
    except InvalidRequest as error:
        raise InvalidRequest(f"--tag: {error.message}") from None


def label_texts(labels: Labels) -> dict[str, Value]:
    """Return the labels as text by option, so that they can be searched for secrets."""
    return {"--name": labels.name, "--note": labels.note, "--tag": " ".join(labels.tags)}
