"""Call the service's operations on registered models."""

from __future__ import annotations

from kernel_backend.client.calls import READING_S, Calls
from kernel_backend.client.cluster import url_part
from kernel_backend.errors import InvalidRequest
from kernel_backend.model.ids import ModelReference, parse_model
from kernel_backend.model.record import checked
from kernel_backend.model.register.history import choose_version
from kernel_backend.model.register.records import Model, ModelEdit, ModelVersion, Registered, Registration


class RegisterCalls(Calls):
    """Calls about registered models; each raises the DaylightError that the service returned."""

    def models(self) -> list[Model]:
        """Return the registered models that the user may see, by owner and name."""
        return self._list(Model, self._service.json("GET", "/api/models"), "models")

    def model(self, name: str) -> Model:
        """Return a model with its versions, aliases and log; `name` is such as `memes` or `vision/memes`.

        Raises NotFound.
        """
        return self._read(Model, self._service.json("GET", f"/api/models/{_whole(name)}"))

    def model_version(self, reference: str | ModelReference) -> ModelVersion:
        """Return the version that a reference names: `memes@production`, `memes@3`, or `memes` for the newest.

        Raises NotFound, which says what there is, and InvalidRequest.
        """
        found = parse_model(reference) if isinstance(reference, str) else reference
        return choose_version(self.model(str(found._replace(which=""))), found.which)

    def register(self, number: int, trial: int, checkpoint: str, name: str, note: str = "") -> Registered:
        """Make a checkpoint, such as `500-2`, the next version of the model `name`; return it.

        A checkpoint that is a version of this model already is returned as it is. Raises NotFound, Forbidden, Conflict,
        and CheckpointDamaged, as every byte is verified before.
        """
        owner, short, which = parse_model(name)
        if which:
            raise InvalidRequest(
                f"{name!r}: register takes a name; daylight model {short} --set {which}=N moves an alias"
            )
        asked = checked(Registration, owner=owner, name=short, note=note)
        path = f"/api/experiments/{number}/checkpoints/{trial}/{checkpoint}/register"
        return self._read(Registered, self._service.json("POST", path, record=asked, timeout=READING_S))

    def change_model(self, name: str, edit: ModelEdit) -> Model:
        """Set, unset or protect an alias of a model, or remove a version; return the model.

        Raises NotFound, Forbidden, and Conflict if the alias is not where `edit.expect` says.
        """
        return self._read(Model, self._service.json("POST", f"/api/models/{_whole(name)}", record=edit))


def _whole(name: str) -> str:
    """Return a model's name as a part of a URL; raises InvalidRequest for one with an alias or a version."""
    if (found := parse_model(name)).which:
        raise InvalidRequest(f"{name!r} names a version: name the model, {found._replace(which='')}")
    return url_part(name)
