"""Test that a forked rank equals one started as a new interpreter: in its environment and its results."""

from __future__ import annotations

import json
import os
from typing import Any

import psutil
import pytest
from gang import DIGITS, Trial

from kernel_backend.launch.forkserver import cache_key
from kernel_backend.launch.gang import forkserver_env, rank_env
from kernel_backend.launch.rendezvous import RendezvousInfo, rank_assignments

pytestmark = pytest.mark.distributed

# What a definition can see of its process.
PROBE = (
    DIGITS
    + """
import gc, json, locale, multiprocessing.process, os, random, resource, signal, sys, threading, warnings
import torch, torch._dynamo

def files():
    # The last descriptor is that of the listing itself.
    return [os.readlink(f"/proc/self/fd/{each}").split(":")[0] for each in sorted(os.listdir("/proc/self/fd"))[:-1]]

main = sys.modules["__main__"]
facts = {
    "environment": dict(os.environ), "argv": sys.argv, "path": sys.path, "flags": list(sys.flags), "files": files(),
    "main": [main.__spec__.name, main.__file__], "python": sys.executable, "hash": hash("daylight"),
    "folders": [os.getcwd(), multiprocessing.process.ORIGINAL_DIR], "locale": list(locale.getlocale()),
    "streams": [[s.encoding, s.line_buffering, s.write_through] for s in (sys.stdin, sys.stdout, sys.stderr)],
    "signals": {s.name: str(signal.getsignal(s)).split(" at ")[0] for s in signal.Signals},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "threads": [t.name for t in threading.enumerate()],
    "limits": [resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith("RLIMIT_")],
    "umask": os.umask(0o022), "cores": sorted(os.sched_getaffinity(0)), "nice": os.nice(0), "gc": gc.get_threshold(),
    "torch": [torch.get_num_threads(), torch.get_num_interop_threads(), str(torch.__config__.show()),
              torch.backends.cpu.get_cpu_capability(), torch.are_deterministic_algorithms_enabled()],
}
with open(os.path.join(sys.argv[1], "facts.json"), "w") as file:
    json.dump(facts, file)
"""
)
PER_ATTEMPT = ("MASTER_PORT", "HOROVOD_GLOO_RENDEZVOUS_PORT", "DAYLIGHT_WARM", "PYTEST_CURRENT_TEST")


def facts(attempt: Any) -> dict[str, Any]:
    """Return the facts that the attempt's rank wrote about its process, without those that differ in each attempt."""
    text = (attempt.folder.path / "facts.json").read_text().replace(str(attempt.folder.path), "ATTEMPT")
    found: dict[str, Any] = json.loads(text)
    for name in PER_ATTEMPT:
        found["environment"].pop(name, None)
    return found


def parents(attempt: Any) -> set[str]:
    """Return the command lines of the processes that started the ranks."""
    return {" ".join(psutil.Process(psutil.Process(pid).ppid()).cmdline()) for pid in attempt.pids()}


def test_a_forked_rank_sees_what_a_cold_one_sees(trial, monkeypatch):
    probed = trial(source=PROBE, slots=1, epochs=1)
    warm = probed.run()
    monkeypatch.setenv("DAYLIGHT_WARM", "0")
    cold = probed.run()
    assert facts(warm) == facts(cold)


@pytest.mark.parametrize("backend", ["torch", pytest.param("horovod", marks=pytest.mark.long)])
def test_cold_ranks_give_the_same_bits_as_forked_ones(whole, trial, backend, monkeypatch):
    forked = whole(backend, 2)
    monkeypatch.setenv("DAYLIGHT_WARM", "0")
    cold = trial(backend=backend, params={"pause": 0.01})
    attempt = cold.start(hold=1)
    attempt.wait(attempt.pids)
    assert parents(attempt) == {" ".join(psutil.Process().cmdline())}
    assert attempt.go().ended().codes == [0, 0], attempt.logs()
    assert cold.parts() == forked.trial.parts()
    assert attempt.reports("training") == forked.attempt.reports("training")


@pytest.mark.gpu
def test_a_forked_rank_computes_on_a_gpu_what_a_cold_one_does(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    forked, cold = (Trial(tmp_path / name, slots=1, kind="cuda") for name in ("forked", "cold"))
    assert forked.run().codes == [0]
    monkeypatch.setenv("DAYLIGHT_WARM", "0")
    assert cold.run().codes == [0]
    assert cold.parts() == forked.parts()


def test_the_ranks_of_all_attempts_come_from_one_forkserver_and_share_its_memory(trial):
    asked = trial()
    attempts = [asked.start(hold=1).reaches(1) for _ in range(2)]
    servers = {psutil.Process(pid).ppid() for attempt in attempts for pid in attempt.pids()}
    (server,) = servers
    assert "kernel_backend.launch.forkserver" in psutil.Process(server).cmdline()
    for attempt in attempts:
        for rank, pid in enumerate(attempt.pids()):
            shown = psutil.Process(pid)
            assert shown.name() == f"rank {rank} {attempt.folder.path.name}"
            assert json.loads((attempt.folder.path / "ranks.json").read_bytes())[str(rank)] == pid
            memory = shown.memory_full_info()
            print(f"rank {rank}: {memory.uss >> 20} MiB of its own, of {memory.rss >> 20} MiB")
            assert memory.uss < memory.rss / 2
        attempt.hang_up().ended()


@pytest.mark.parametrize("scope", ["off", "host", "portable"])
def test_a_forkserver_has_every_variable_that_its_ranks_need_before_torch_is_imported(trial, scope):
    asked = trial(slots=1)
    job = asked.job()
    job = job.model_copy(update={"config": job.config.model_copy(update={"reproducible": scope, "threads": 3})})
    common = forkserver_env({**os.environ, "DAYLIGHT_ATTEMPT": "/here"}, job)
    rank = rank_env(os.environ, job, rank_assignments(job.placement)[0], RendezvousInfo("127.0.0.1", "lo", 1, 2))
    assert cache_key.variables(common) == cache_key.variables(rank)
    assert "DAYLIGHT_ATTEMPT" not in common
    assert common["OMP_NUM_THREADS"] == "3"
