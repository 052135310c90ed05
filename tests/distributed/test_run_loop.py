"""Test `train(run)`: the bits of a plain loop, on every backend, and after every kill."""

from __future__ import annotations

import random

import pytest
import torch
from form_contract import FormContract
from gang import STAND, Trial, as_json
from test_begins_with_weights import begun_with

from kernel_backend.model.reports import Report
from kernel_backend.runner.data.permutation import Permutation

pytestmark = pytest.mark.distributed

# Nested epochs with BatchNorm, dropout, a buffer in no state_dict, a schedule, clipping, a generator and a dict.
NESTED = f"""
import time
import numpy as np
import torch
from torch import nn
{STAND}
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2))
        self.head, self.calls = nn.Linear(width, 2), 0
        self.register_buffer("drift", torch.zeros(()), persistent=False)
    def forward(self, x):
        self.calls += 1
        self.drift += 0.01 * self.training
        return self.head(self.body(x)) * (1 + self.drift)
def data():
    x = torch.randn(90, 16, generator=torch.Generator().manual_seed(7))
    return torch.utils.data.TensorDataset(x, (x[:, :4].sum(1) > 0).long())
def train(run, lr=1e-2, width=24, passes=2, size=12, pause=0.0):
    torch.manual_seed(3)
    net = Net(width).to(run.device)
    opt = torch.optim.AdamW(net.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
    noise, seen = np.random.default_rng(5), {{"losses": []}}
    run.restore(model=net, optimizer=opt, schedule=schedule, noise=noise, seen=seen)
    train_data = torch.utils.data.Subset(data(), range(70))
    validation_data = torch.utils.data.Subset(data(), range(70, 90))
    for epoch in run.epochs(passes):
        net.train()
        for x, y in run.loader(train_data, batch_size=size):
            time.sleep(pause)
            stand()
            loss = nn.functional.cross_entropy(net(x + 0.01 * float(noise.standard_normal())), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            seen["losses"].append(loss.item())
            run.report(loss=loss.item())
        schedule.step()
        net.eval()
        hits = count = total = 0
        with torch.no_grad():
            for x, y in run.loader(validation_data, batch_size=8, validation=True):
                out = net(x)
                hits += (out.argmax(1) == y).sum().item()
                total += nn.functional.cross_entropy(out, y, reduction="sum").item()
                count += len(y)
        run.report(loss=total / count, accuracy=hits / count, calls=net.calls, validation=True)
    run.finish(model=net)
"""


def by_hand(epochs=2):
    """Run the same training in a loop without `run`, with only the runner's order of samples."""
    scope = {}
    exec(NESTED, scope)
    import numpy as np

    torch.manual_seed(3)
    net = scope["Net"](24)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
    noise, losses = np.random.default_rng(5), []
    x, y = scope["data"]().tensors
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for epoch in range(epochs):
        net.train()
        order = Permutation(0, epoch, 70).slice(0, 70)
        for start in range(0, 70, 12):
            rows = order[start : start + 12]
            out = net(x[rows] + 0.01 * float(noise.standard_normal()))
            loss = torch.nn.functional.cross_entropy(out, y[rows])
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            losses.append(loss.item())
        schedule.step()
    torch.set_num_threads(threads)
    return net, losses


def test_one_slot_gives_the_bits_of_the_plain_loop(trial):
    one = trial(source=NESTED, slots=1)
    ran = one.run()
    assert ran.codes == [0], ran.logs()
    net, losses = by_hand()
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, one.model()[name]), name
    assert [values["loss"] for _, values in sorted(ran.reports("training").items())] == losses
    assert sorted(ran.reports("validation")) == [6, 12]
    epochs = {each.step: each.epoch for each in ran.records if isinstance(each, Report)}
    assert epochs == pytest.approx({step: step / 6 for step in range(1, 13)})
    assert ran.started.resumed_from is None
    assert ran.started.guarantee == "reproducible: a kill changes no bit of the result, on 1 slot and this kind of CPU"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Provide uninterrupted trainings by number of slots."""
    made = {}
    for slots in (1, 2):
        made[slots] = Trial(tmp_path_factory.mktemp("whole") / "trial", source=NESTED, slots=slots)
        made[slots].attempt = made[slots].run()
        assert made[slots].attempt.codes == [0] * slots, made[slots].attempt.logs()
    return made


def test_horovod_gives_the_bits_of_torch(trial, whole):
    other = trial(source=NESTED, backend="horovod")
    ran = other.run()
    assert ran.codes == [0, 0], ran.logs()
    assert other.parts() == whole[2].parts()
    assert as_json(ran.reports("validation")) == as_json(whole[2].attempt.reports("validation"))


@pytest.mark.parametrize(
    ("slots", "step"), [(1, 6), (2, 4), *(pytest.param(*each, marks=pytest.mark.long) for each in [(1, 3), (2, 9)])]
)
def test_a_killed_training_goes_on_to_the_same_bits(trial, whole, slots, step):
    killed = trial(source=NESTED, slots=slots, every="1steps", params={"pause": 0.02})
    first = killed.start(hold=step + 1).reaches(step)
    first.kill(random.Random(step).randrange(slots))
    second = killed.run(resume_from=killed.pinned())
    assert second.codes == [0] * slots, second.logs()
    assert second.started.resumed_from is not None
    assert killed.parts() == whole[slots].parts()
    assert second.reports("validation")[12] == whole[slots].attempt.reports("validation")[12]


# The same with an update after four batches, of which six make an epoch.
ACCUMULATED = NESTED.replace("opt.zero_grad()\n", "pass\n").replace(
    "            opt.step()\n",
    "            if run.step % 4 == 0:\n                opt.step()\n                opt.zero_grad()\n",
)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_loop_killed_between_two_updates_goes_on_to_the_same_bits(trial, tmp_path, slots):
    """Accumulated gradients are part of a checkpoint."""
    whole = Trial(tmp_path / "whole", source=ACCUMULATED, slots=slots)
    assert whole.run().codes == [0] * slots
    killed = trial(source=ACCUMULATED, slots=slots, every="1steps", params={"pause": 0.02})
    first = killed.start(hold=7).reaches(6)
    first.wait(lambda: "6-1" in first.committed())
    first.kill(slots - 1)
    second = killed.run(resume_from="6-1")
    assert second.codes == [0] * slots, second.logs()
    assert killed.parts() == whole.parts()


class TestContract(FormContract):
    """Test that an own loop keeps what every form promises, on two slots."""

    source = NESTED
    diverging = NESTED.replace("lr=1e-2", "lr=1e30")
    slots = 2


def test_weights_from_another_model_are_taken_as_far_as_they_match(tmp_path, whole):
    child = begun_with(whole[1], tmp_path, source=NESTED, slots=1, params={"width": 8}, options={"weights_from": "1"})
    ran = child.run(resume_from="0-0")
    assert ran.codes == [0], ran.logs()
    (note,) = [each for each in ran.notes() if each.startswith("the other trial's weights lack body.0.weight, ")]
    assert "head.bias" not in note


# REINFORCE in a corridor: no data, an environment with a state of its own, and other actions on every slot.
REINFORCE = f"""
import time
import torch
from torch import nn
{STAND}
class Corridor:
    def __init__(self): self.place, self.rounds = 0, 0
    def reset(self):
        self.place, self.rounds = 3, self.rounds + 1
        return self.place
    def step(self, right):
        self.place += 1 if right else -1
        return self.place, float(self.place == 6), self.place in (0, 6)
    def state_dict(self): return {{"place": self.place, "rounds": self.rounds}}
    def load_state_dict(self, state): self.place, self.rounds = state["place"], state["rounds"]
def train(run, lr=0.05, pause=0.0):
    policy = nn.Linear(7, 2).to(run.device)
    baseline = torch.zeros(())
    opt = torch.optim.Adam(policy.parameters(), lr=lr)
    world = Corridor()
    run.restore(model=policy, optimizer=opt, world=world, baseline=baseline)
    for number in run.steps(30):
        stand()
        time.sleep(pause)
        place, done, logs, gain = world.reset(), False, [], 0.0
        while not done and len(logs) < 30:
            choice = torch.distributions.Categorical(logits=policy(torch.eye(7)[place]))
            action = choice.sample()
            logs.append(choice.log_prob(action))
            place, reward, done = world.step(int(action))
            gain += reward
        loss = -(gain - baseline) * torch.stack(logs).sum()
        baseline.mul_(0.9).add_(0.1 * gain)
        opt.zero_grad()
        loss.backward()
        opt.step()
        run.report({{"return": gain}}, length=len(logs))
        if number % 10 == 9:
            run.report(score=float(baseline), validation=True)
"""


@pytest.mark.parametrize(("slots", "rng"), [(1, 11), (2, 17)])
def test_reinforcement_learning_without_data_survives_a_kill(trial, tmp_path, slots, rng):
    options = {"metric": {"name": "score", "mode": "max"}}
    expected = Trial(tmp_path / "whole", source=REINFORCE, slots=slots, options=options)
    ran = expected.run()
    assert set(ran.codes) == {0}, ran.logs()
    assert sorted(ran.reports("validation")) == [10, 20, 30]
    assert ran.started.total_steps == 30
    assert {each.step: each.epoch for each in ran.records if isinstance(each, Report)}[30] == 1.0
    killed = trial(source=REINFORCE, slots=slots, every="3steps", params={"pause": 0.01}, options=options)
    killed.start(hold=rng).reaches(rng - 4).kill(0)
    second = killed.run(resume_from=killed.pinned())
    assert set(second.codes) == {0}, second.logs()
    assert killed.parts() == expected.parts()
    assert second.reports("validation")[30] == ran.reports("validation")[30]


def test_slots_draw_other_actions_and_train_the_same_weights(trial):
    two = trial(source=REINFORCE)
    ran = two.run()
    assert ran.codes == [0, 0], ran.logs()
    returns = {values["return"] for values in ran.reports("training").values()}
    assert returns & {0.5}, "both slots have the same luck in every round"


PLAIN = """
import torch
from torch import nn
def data(): return torch.utils.data.TensorDataset(torch.arange(13.0)[:, None], torch.arange(13.0)[:, None] ** 2)
def train(run, data, lr=1e-3):
    torch.manual_seed(0)
    net = nn.Linear(1, 1)
    opt = torch.optim.SGD(net.parameters(), lr=lr)
    run.restore(model=[net], optimizer=opt)  # a list of modules, as of an ensemble
    for x, y in run.loader(data):
        loss = (net(x / 13) - y / 169).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        run.report(loss=loss.item())
"""


def test_two_slots_train_what_one_does_with_shares_of_unequal_size(trial, tmp_path):
    """Of 13 samples in batches of 4, the last batch has a single sample, on one slot."""
    options = {"epochs": 3, "batch_size": 4}
    one, two = (Trial(tmp_path / str(slots), source=PLAIN, slots=slots, **options) for slots in (1, 2))
    first, second = one.run(), two.run()
    assert (first.codes, second.codes) == ([0], [0, 0]), first.logs() + second.logs()
    assert one.newest().step == two.newest().step == 12
    for name, tensor in one.model().items():
        torch.testing.assert_close(two.model()[name], tensor)
    for step, values in first.reports("training").items():
        assert values["loss"] == pytest.approx(second.reports("training")[step]["loss"], rel=1e-5)


@pytest.mark.parametrize("source", [PLAIN, NESTED.replace("run.epochs(passes)", "run.epochs()")])
def test_a_finished_loop_is_continued_with_more_epochs(tmp_path, source):
    more, whole = (Trial(tmp_path / str(n), source=source, epochs=n, slots=1) for n in (1, 3))
    assert more.run().codes == [0]
    more.epochs = 3
    ran = more.run(resume_from=more.pinned())
    assert ran.codes == [0], ran.logs()
    assert whole.run().codes == [0]
    assert more.parts() == whole.parts()
    assert more.newest().step == whole.newest().step


def test_a_plain_range_around_a_loader_is_refused_with_the_way_out(trial):
    source = PLAIN.replace(
        "    for x, y in run.loader(data):", "    for _ in range(2):\n     for x, y in run.loader(data):"
    )
    ran = trial(source=source).run()
    assert ran.codes == [1, 1]
    assert "begins a second time outside of run.epochs()" in ran.failures()[0].message
    assert "for epoch in run.epochs(10):" in ran.failures()[0].message


def test_a_search_without_a_validation_is_told_what_to_write(trial):
    ran = trial(source=PLAIN, options={"search": {"method": "asha"}}).run()
    assert ran.codes == [1, 1]
    assert "run.report(loss=..., validation=True)" in ran.failures()[0].message


def test_an_optimizer_of_weights_that_are_not_registered_is_refused(trial):
    source = PLAIN.replace("run.restore(model=[net], optimizer=opt)", "run.restore(optimizer=opt)")
    ran = trial(source=source).run()
    assert ran.codes == [1, 1], ran.logs()
    assert "optimizer trains a tensor of shape (1, 1) that is not registered" in ran.failures()[0].message


# A validation that never changes, and more notes than are kept.
STALE = (
    PLAIN.replace("    for x, y in", "    for _ in range(120):\n        run.log('hello')\n    for x, y in")
    + "        run.report(loss=1.0, validation=True)\n"
)


def test_a_loop_ends_by_its_patience_with_a_note_and_logs_what_is_too_much_for_notes(tmp_path):
    stale = Trial(tmp_path / "stale", source=STALE, slots=1, epochs=9, options={"patience": 3})
    ran = stale.run()
    assert ran.codes == [0], ran.logs()
    assert stale.newest().step == 4
    notes = ran.notes()
    assert "stopped early at step 4: 3 validations without a better loss; the best was 1" in notes
    assert notes.count("hello") == 100
    assert "run.log was called 100 times: later values are in the logs alone" in notes
    assert ran.logs().count("hello") == 20
