"""Map options of other tools (Lightning, Optuna, W&B, SLURM), and former ones, to what is written here instead."""

from __future__ import annotations

import re
from collections.abc import Container

from kernel_backend.model.search.registry import find

# What to write instead, and the other tools' names of it. `{N}` stands for the value, and for itself without one.
INSTEAD = {
    "nothing in its place, as a restart is rehearsed unless --no-rehearsal forbids it": "rehearse",
    "--slots {N}": (
        "gpus gpu num-gpus n-gpus ngpus gpus-per-node gpus-per-task gpus-per-trial gres devices num-devices nproc "
        "nproc-per-node num-processes n-procs np ntasks ntasks-per-node world-size num-slots replicas ddp distributed"
    ),
    "--slots N, which are those of all nodes together (--one-node keeps them on one)": (
        "nodes num-nodes nnodes n-nodes num-machines"
    ),
    "--threads {N}": "cpus cpus-per-task cpus-per-gpu num-cpus num-threads omp-num-threads",
    "--pool {NAME}": "partition queue cluster nodelist constraint instance-type machine-type",
    "--group {NAME}": "account team entity",
    "--priority {N}": "qos nice",
    "--max-time {TIME}": "time timeout time-limit timelimit walltime wall-time max-runtime time-budget",
    "--epochs {N}": "max-epochs num-epochs n-epochs nb-epochs num-train-epochs train-epochs nepochs",
    "--steps {N}": "max-steps num-steps n-steps num-train-steps train-steps total-steps max-iters iterations niter",
    "--batch-size {N}": "bs batch batchsize train-batch-size train-bs",
    "--batch-size {N} --per-slot-batch": "per-device-train-batch-size per-gpu-batch-size micro-batch-size",
    "--accumulate {N}": (
        "gradient-accumulation-steps accumulate-grad-batches gradient-accumulation grad-accum accum-steps "
        "grad-accum-steps"
    ),
    "--clip {NORM}": "gradient-clip-val gradient-clip max-grad-norm grad-clip clip-grad clip-grad-norm max-norm",
    "--amp bf16 or --amp fp16": "precision mixed-precision use-amp dtype",
    "--amp bf16": "bf16 bfloat16",
    "--amp fp16": "fp16 half float16",
    "--compile": "torch-compile jit",
    "--strategy fsdp2": "fsdp fully-shard deepspeed zero",
    "--sync-bn": "sync-batchnorm syncbn",
    "--ema {DECAY}": "ema-decay",
    "--device cpu": "cpu no-cuda use-cpu",
    "--seed {N}": "random-state random-seed manual-seed data-seed",
    "--loader-workers {N}": "num-workers n-workers dataloader-num-workers num-data-workers",
    "--validate-every {N}epochs": "check-val-every-n-epoch eval-interval val-interval eval-every val-every",
    "--validate-every {N}steps": "val-check-interval eval-steps",
    "--validate-every 1epoch": "eval-strategy evaluation-strategy",
    "--patience {N}": "early-stopping early-stop early-stopping-patience earlystopping",
    "--checkpoint-every {N}steps": "save-steps save-interval save-every-n-steps every-n-train-steps",
    "--checkpoint-every {N}epoch": "save-every every-n-epochs save-every-n-epochs",
    "--checkpoint-every 1epoch": "save-strategy",
    "--keep best:{N}": "save-top-k",
    "--keep best:1,latest:{N}": "save-total-limit max-to-keep",
    "--metric {NAME}": "monitor metric-for-best-model objective objective-metric",
    "--metric NAME:{MODE}": "mode direction goal metric-mode",
    "--metric NAME:max": "maximize greater-is-better",
    "--metric NAME:min": "minimize",
    "--search {METHOD}": "sweep algorithm algo tuner search-alg method tune hpo",
    "--search asha": "pruner early-terminate hyperband scheduler",
    "--search grid with lists such as lr=0.1,0.01": "array multirun",
    "--trials {N}": "n-trials num-trials num-samples n-samples n-iter max-trials max-evals count run-cap runs",
    "--parallel {N}": "n-jobs jobs njobs parallelism max-concurrent max-concurrent-trials concurrency",
    "--from {NUMBER}, which begins with its best weights": (
        "pretrained init-from init-weights weights load load-from finetune-from warm-start initialize-from"
    ),
    "%dl continue {NUMBER} --epochs N to train on, or --from {NUMBER} to begin with its best weights": (
        "resume resume-from resume-from-checkpoint ckpt ckpt-path checkpoint restore load-checkpoint"
    ),
    "--name {NAME}": "job-name run-name experiment-name study-name exp-name title run experiment project",
    "--tag {TAG}": "tags label labels",
    "--note {TEXT}": "notes description comment",
    "--local --steps {N}": "fast-dev-run limit-train-batches overfit-batches debug",
    "--wait": "follow watch block blocking",
    "--no-wait": "detach background async",
    "--max-restarts {N}": "max-failures max-retries retries requeue",
}
_LINES = {name: line for line, names in INSTEAD.items() for name in names.split()}
_PLACE = re.compile(r"\{([A-Z]+)\}")
_METHODS = {
    "tpe": "bayes bayesian bayesopt bayesian-optimization bo optuna hyperopt",
    "gp": "gaussian-process gpr",
    "cmaes": "cma-es cma",
    "asha": "sha successive-halving halving",
    "pbt": "population-based-training population-based",
    "grid": "grid-search gridsearch",
    "random": "random-search randomized",
    "sobol": "quasi-random qmc quasirandom",
}
_METHOD_OF = {other: method for method, others in _METHODS.items() for other in others.split()}


def instead(option: str, value: str, known: Container[str]) -> str | None:
    """Return what to write instead of another tool's option; None if it is not known, or has no place on this line.

    `known` are the options of the verb or magic. `value` is the option's value, "" without one.

    Examples
    --------
    >>> instead("--max_epochs", "8", {"--epochs"})
    '--epochs 8'
    >>> instead("--direction", "maximize", {"--metric"})
    '--metric NAME:max'
    """
    line = _LINES.get(option.lstrip("-").replace("_", "-").lower())
    if line is None or (line.startswith("--") and line.split()[0] not in known):
        return None
    if line.startswith("%dl") and "--name" not in known:
        return None

    def filled(place: re.Match[str]) -> str:
        return _mode(value) if place[1] == "MODE" else value if _fits(place[1], value) else place[1]

    return _PLACE.sub(filled, line)


def method_meant(name: str) -> str:
    """Return the search method, such as `tpe`, that another tool's name for it means, such as `bayes`.

    Other names, and those of methods of packages, are returned unchanged.
    """
    meant = _METHOD_OF.get(name.replace("_", "-").lower())
    return name if meant is None or find(name) else meant


def _mode(value: str) -> str:
    return value[:3].lower() if value[:3].lower() in ("min", "max") else "max or NAME:min"


def _fits(place: str, value: str) -> bool:
    return value.isdecimal() if place == "N" else bool(value)
