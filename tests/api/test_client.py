"""Test the client against a real service: equal records and errors on both sides, also after the service restarts."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import aclosing
from itertools import islice

import pytest
from websockets.sync.client import connect

from kernel_backend import discovery
from kernel_backend.client import Client
from kernel_backend.errors import (
    Conflict,
    Fenced,
    ImpossibleAsk,
    InvalidDefinition,
    InvalidRequest,
    NotFound,
    ServiceUnreachable,
    Unauthenticated,
)
from kernel_backend.model.experiment import Submission
from kernel_backend.model.ids import AttemptId
from kernel_backend.model.reports import Delivery, Fact, Note
from kernel_backend.service.verbs import attempts
from tests.api.served import TOKEN, Served, StillEngine, archive, report, started, submit, token_of
from tests.support.world import until

KEY = AttemptId(1, 1, 1)


@pytest.fixture
def token(served, client) -> str:
    submit(client)
    return token_of(served, KEY)


def test_what_was_submitted_is_shown_listed_and_read_back(client):
    made = submit(client, name="digits", slots=2, epochs=3)
    shown = client.experiment(made.experiment.number)
    assert shown.experiment == made.experiment
    assert shown.experiment.config.slots == 2
    assert shown.experiment.params == {"width": 8, "lr": 0.1}
    assert [each.experiment.name for each in client.experiments(search="dig")] == ["digits"]
    assert client.experiments(search="nothing like it") == []
    definition, snapshot = client.source(1)
    assert definition.startswith("def model(width=8)")
    assert snapshot.locate(1) == (4, None, 1)
    assert client.nodes()[0].slots == 2
    assert client.checkpoints(1) == []
    assert client.health()["busy"] is True


def test_certificates_of_authorities_are_loaded_for_an_encrypted_service_alone(served, monkeypatch):
    loaded = []
    create = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda *args, **more: loaded.append(1) or create(*args, **more))
    assert served.client().nodes()
    assert loaded == []
    encrypted = Client.at(f"https://127.0.0.1:{served.port}", TOKEN, patience=0.0)
    with pytest.raises(ServiceUnreachable):  # the service does not encrypt
        encrypted.nodes()
    assert loaded == [1]


def test_errors_come_back_as_the_same_errors(served, client):
    with pytest.raises(NotFound, match="7"):
        client.experiment(7)
    with pytest.raises(ImpossibleAsk, match="5 slots requested"):
        submit(client, slots=5)
    id, data = archive("def loss(output, target): return 0\n")
    client.upload_snapshot(id, data)
    with pytest.raises(InvalidDefinition):
        client.submit(Submission(snapshot=id, python="p", cwd="/"))
    with pytest.raises(NotFound):
        client.submit(Submission(snapshot="0" * 64, python="p", cwd="/"))
    with pytest.raises(InvalidRequest):
        client.upload_snapshot("0" * 64, b"not it")
    submit(client)
    token_of(served, KEY)
    client.stop(1)
    with pytest.raises(Conflict, match="stopping"):
        client.resume(1)


def test_a_wrong_token_is_unauthenticated(served):
    stranger = served.client(token="wrong")
    with pytest.raises(Unauthenticated):
        stranger.nodes()
    with pytest.raises(Unauthenticated):
        stranger.upload_snapshot("0" * 64, b"")
    with pytest.raises(Unauthenticated):
        next(stranger.watch())


def test_a_snapshot_is_uploaded_once(served, client, monkeypatch):
    stored = []
    put = served.service.submissions.put_snapshot
    monkeypatch.setattr(
        served.service.submissions, "put_snapshot", lambda who, id, data: (stored.append(id), put(who, id, data))[1]
    )
    submit(client)
    submit(client)
    assert len(stored) == 1


def test_records_are_delivered_and_read_back_in_pages(client, token):
    answer = client.deliver(KEY, token, Delivery(records=(started(), report(2), report(3))))
    assert (answer.accepted, answer.instruct) == (3, "continue")
    found = client.reports(1)
    assert [each.step for each in found] == [2, 3]
    assert client.reports(1, after=found[0].seq) == found[1:]
    assert client.reports(1, limit=1) == found[:1]
    assert client.reports(1, kind="training") == []
    assert client.experiment(1).trials[0].step == 3


def test_the_curves_are_drawn(client, token):
    client.deliver(KEY, token, Delivery(records=(started(), report(2), report(3))))
    for dark in (False, True):
        assert client.picture(1, dark=dark).startswith(b"\x89PNG")
    with pytest.raises(NotFound):
        client.picture(7)


def test_a_record_that_is_delivered_twice_counts_once(client, token):
    for _ in range(2):
        client.deliver(KEY, token, Delivery(records=(started(), report(2))))
    assert len(client.reports(1)) == 1


def test_numbers_that_are_none_arrive_as_such(client, token):
    client.deliver(KEY, token, Delivery(records=(started(), report(2, loss=float("nan"), best=float("inf")))))
    metrics = client.reports(1)[0].metrics
    assert metrics["loss"] != metrics["loss"]
    assert metrics["best"] == float("inf")


def test_a_stopped_experiment_instructs_its_ranks(client, token):
    client.stop(1)
    until(lambda: client.deliver(KEY, token, Delivery()).instruct == "stop", "a heartbeat brings the instruction back")
    with pytest.raises(Unauthenticated):
        client.deliver(KEY, "wrong", Delivery())
    with pytest.raises(Unauthenticated):
        client.deliver("9.9-9", token, Delivery())


def test_the_stream_tells_everything_once_and_in_order(client, token):
    messages = client.watch(after=0, experiment=1)
    client.deliver(KEY, token, Delivery(records=(started(), report(2))))
    seen = []
    for message in messages:
        seen.append(message)
        if message.type == "report":
            break
    assert [message.seq for message in seen] == sorted({message.seq for message in seen})
    assert {"experiment", "trial", "attempt", "report"} <= {message.type for message in seen}


def test_a_picture_follows_the_stream(client, token):
    overview = client.experiment(1)
    client.deliver(KEY, token, Delivery(records=(started(), report(2))))
    for message in client.watch(after=overview.seq, experiment=1):
        overview = overview.after(message)
        if overview.trials[0].step == 2:
            break
    fresh = client.experiment(1)
    assert overview.trials == fresh.trials
    assert overview.state == "running"
    assert overview.after(message) is overview


def test_a_cut_stream_goes_on_without_loss_or_doubles(served, client, token):
    client.deliver(KEY, token, Delivery(records=(started(),)))
    cuts, steps = [], []

    def deliver_and_cut() -> None:
        launcher = served.client()
        for number in range(2, 42):
            launcher.deliver(KEY, token, Delivery(records=(report(number),)))
            if number % 8 == 0:
                until(lambda: served.use.streams, "somebody watches")
                cuts.append(served.cut())

    speaker = threading.Thread(target=deliver_and_cut)
    messages = client.watch(after=client.experiment(1).seq, experiment=1)
    speaker.start()
    for message in messages:
        if message.type == "report":
            steps.append(message.data["step"])
        if steps and steps[-1] == 41:
            break
    speaker.join()
    assert steps == list(range(2, 42))
    assert sum(cuts) >= 1


def test_a_stream_that_is_closed_before_it_began_never_begins(served, client):
    submit(client)
    own = served.client()
    messages = own.watch(after=0, experiment=1)
    own.close()
    own.experiment(1)  # a question that was still open is answered by a new connection
    assert list(messages) == []
    own.close()


def test_a_stream_outlives_the_service(tmp_path):
    storage = [first := Served(tmp_path, StillEngine())]
    submit(first.client())
    token_of(first, KEY)
    messages = Client(lambda: discovery.Address(storage[-1].url, TOKEN)).watch(after=0, experiment=1)
    before = [message.seq for message in islice(messages, 2)]
    first.stop()
    storage.append(second := Served(tmp_path, first.engine))
    second.client().stop(1)
    after = []
    for message in messages:
        after.append(message.seq)
        if message.type == "trial" and message.data["state"] == "stopping":
            break
    messages.close()
    assert before + after == sorted({*before, *after})
    second.stop()


def test_a_stream_that_was_silent_for_longer_than_patience_outlives_its_first_cut(served, client, token, monkeypatch):
    monkeypatch.setattr("kernel_backend.client.conversation.SILENCE_S", 0.1)
    messages = served.client(patience=0.5).watch(after=client.experiment(1).seq, experiment=1)

    def cut_and_deliver() -> None:
        time.sleep(1.0)
        served.cut()
        served.client().deliver(KEY, token, Delivery(records=(started(),)))

    speaker = threading.Thread(target=cut_and_deliver)
    speaker.start()
    assert next(messages).type in ("trial", "attempt", "experiment")
    speaker.join()


def test_a_slow_reader_makes_the_service_wait_and_not_grow(served, client, token, monkeypatch):
    handed_out: list[str] = []
    watch = served.service.watch

    async def counted(*args, **kwargs):
        async with aclosing(watch(*args, **kwargs)) as messages:
            async for message in messages:
                handed_out.append(message)
                yield message

    monkeypatch.setattr(served.service, "watch", counted)
    client.deliver(KEY, token, Delivery(records=(started(),)))
    small = socket.create_connection(("127.0.0.1", served.port))
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    address = f"ws://127.0.0.1:{served.port}/api/stream?experiment=1"
    allowed = {"Authorization": f"Bearer {TOKEN}"}
    wide = {f"a_metric_with_a_long_name_{index}": 0.123456789 for index in range(400)}
    total, steps = 1500, []
    # Compressed, all of it may fit into the buffers of the kernel.
    plain = {"compression": None, "max_queue": 1, "ping_interval": None}
    with connect(address, sock=small, additional_headers=allowed, **plain) as reader:
        for number in range(2, total + 2, 150):
            batch = tuple(report(n, **wide) for n in range(number, number + 150))
            client.deliver(KEY, token, Delivery(records=batch))
        client.nodes()  # the others are served all the while
        assert len(handed_out) < total, "the service wrote on although nobody took what it had written"
        while not steps or steps[-1] < total + 1:
            message = json.loads(reader.recv(timeout=30))
            steps += [message["data"]["step"]] if message["type"] == "report" else []
    assert steps == list(range(2, total + 2))


def test_no_service_is_unreachable_and_says_what_to_do():
    with pytest.raises(ServiceUnreachable, match="daylight serve"):
        Client.at("http://127.0.0.1:9", TOKEN, patience=0).nodes()


def test_a_home_without_a_service_is_unreachable_at_once(tmp_path):
    with pytest.raises(ServiceUnreachable, match="daylight serve"):
        Client.connect(start=False, home=tmp_path)
    with pytest.raises(ServiceUnreachable):
        Client.at_home(tmp_path).deliver(KEY, "token", Delivery())


def test_a_service_that_moved_to_another_port_is_found_again(tmp_path):
    storage = []
    client = Client(lambda: discovery.Address(storage[-1].url, TOKEN), patience=20)
    storage.append(Served(tmp_path, StillEngine()))
    submit(client)
    storage[-1].stop()
    moved = Served(tmp_path, StillEngine())
    storage.append(moved)
    assert client.experiment(1).experiment.name == "digits"
    moved.stop()


def test_one_who_waits_for_a_service_hears_about_it_once(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("kernel_backend.reconnect.SILENCE_S", 0.0)
    tries = iter(["http://127.0.0.1:9"] * 4)

    def locate() -> discovery.Address:
        for url in tries:
            return discovery.Address(url, TOKEN)
        raise discovery.CannotStart("it will never come")

    with pytest.raises(discovery.CannotStart):
        Client(locate, patience=60, say=said.append).nodes()
    assert len(said) == 1
    assert "trying again" in said[0]


def test_the_import_is_light():
    code = (
        "import kernel_backend.client, sys; print([m for m in ('httpx', 'websockets', 'tornado') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_older_attempt_is_fenced(served, client, token):
    client.pause(1)
    served.engine.jobs.pop(KEY)
    until(lambda: client.experiment(1).trials[0].state == "paused", "its gang has gone")
    client.resume(1)
    token_of(served, AttemptId(1, 1, 2))
    with pytest.raises(Fenced):
        client.deliver(KEY, token, Delivery())


def test_the_token_of_an_attempt_ends_a_day_after_it(served, client, token, monkeypatch):
    late = Note(number=2, at=2.0, text="late")
    client.deliver(KEY, token, Delivery(records=(started(),)))
    served.engine.end(KEY)
    until(lambda: client.experiment(1).state == "completed", "it has ended")
    assert client.deliver(KEY, token, Delivery(records=(late,))).accepted == 2, "its network has come back"
    monkeypatch.setattr(attempts, "LATE_S", -1.0)
    with pytest.raises(Fenced, match="is over: exit"):
        client.deliver(KEY, token, Delivery(records=(late.model_copy(update={"number": 3}),), notes=("more",)))


def test_launchers_of_an_attempt_write_so_many_notes(served, client, token, monkeypatch):
    monkeypatch.setattr(attempts, "MOST_NOTES", 12)
    for _ in range(3):
        client.deliver(KEY, token, Delivery(notes=("one more",) * 5))
    messages = [each for each in served.service._store.messages(0) if each.type == "note"]
    assert len(messages) == 12


def test_facts_of_a_trial_come_as_they_were_told(served, client):
    submit(client)
    weights = Fact(number=2, at=2.0, name="weights", value={"digest": "aa", "tensors": {"w": "bb"}})
    client.deliver(AttemptId(1, 1, 1), token_of(served, AttemptId(1, 1, 1)), Delivery(records=(started(), weights)))
    assert {fact.name: fact.value for fact in client.facts(1)}["weights"] == weights.value
    assert client.facts(1, trial=2) == []
    with pytest.raises(NotFound):
        client.facts(7)


def test_requests_are_no_lines_of_a_notebook_that_logs_and_those_to_others_are(served, client, caplog):
    import httpx

    with caplog.at_level(logging.INFO):
        client.experiments()
        logging.getLogger("httpx").info("no request")
        other = served.url.replace("127.0.0.1", "localhost")
        httpx.get(f"{other}/api/health", trust_env=False)
    told = [each.getMessage() for each in caplog.records if each.name == "httpx"]
    assert told == ["no request", f'HTTP Request: GET {other}/api/health "HTTP/1.1 401 Unauthorized"']
