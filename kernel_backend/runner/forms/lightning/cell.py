"""Find the arguments of `fit` in the user's cell; if the cell never calls it, create them by the cell's functions."""

from __future__ import annotations

from kernel_backend.definition.lightning.calls import FIT, FitCall, TrainerCall
from kernel_backend.runner.context import RankContext
from kernel_backend.runner.determinism import seeds


def fit_call(rank: RankContext) -> FitCall:
    """Return the Trainer, the module and the data that the cell passes to `fit`.

    What the call lacks, or all of it if the cell never calls `fit`, is created by the cell's classes and functions.
    Without a call, the Trainer is the last one that the cell has created, or else one without arguments.
    """
    module = rank.loaded.module
    definition = rank.loaded.definition
    found: FitCall | None = vars(module).get(FIT)
    made = {}
    for role, function in definition.functions.items():
        if role in ("module", "datamodule") and (found is None or (role == "datamodule" and _lacks_data(found))):
            seeds.reseed(seeds.mix(rank.config.seed, "init", role))
            made[role] = getattr(module, function.attribute)(**function.hyperparameters(rank.functions.params))
    if found is None:
        trainers = [each for each in vars(module).values() if isinstance(each, TrainerCall)]
        found = FitCall(trainers[-1] if trainers else TrainerCall(), made["module"])
    if "datamodule" in made:
        found = found._replace(datamodule=made["datamodule"])
    if rank.functions.has("train_data") and found.datamodule is None and found.train_dataloaders is None:
        validation = rank.functions.result("validation_data") if rank.functions.has("validation_data") else None
        found = found._replace(train_dataloaders=rank.functions.result("train_data"), val_dataloaders=validation)
    return found


def _lacks_data(call: FitCall) -> bool:
    return call.datamodule is None and call.train_dataloaders is None
