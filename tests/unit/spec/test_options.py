"""Test the options of notebook and command line: any order, no abbreviations, and errors that name a remedy."""

from __future__ import annotations

import argparse
import re
from argparse import Namespace

import pytest

from kernel_backend.errors import InvalidRequest
from kernel_backend.model.diff import Rerun
from kernel_backend.model.experiment import (
    AutoBatch,
    Cadence,
    Config,
    Keep,
    Metric,
    parse_duration,
    parse_slot_time,
)
from kernel_backend.model.search.records import Search
from kernel_backend.model.sizes import parse_size, size_word
from kernel_backend.spec.config_text import duration_word, specified_options, specified_settings, to_config, to_options
from kernel_backend.spec.labels import labels_of
from kernel_backend.spec.option_parser import OptionParser, add_options, options_for
from kernel_backend.spec.options import OPTIONS
from kernel_backend.spec.other_tools import INSTEAD
from kernel_backend.spec.slots import parse_slots
from tests.support.builders import parse_options


def config(line: str) -> Config:
    return to_config(parse_options(line.split(), "notebook"))


def test_options_and_words_mix_in_any_order():
    namespace = parse_options(["lr=1", "--slots", "2", "width=8", "--wait", "--epochs=3", "b=-2"], "notebook")
    assert namespace.words == ["lr=1", "width=8", "b=-2"]
    assert to_config(namespace) == Config(slots=2, epochs=3)
    assert namespace.wait is True


def test_without_options_the_configuration_is_the_default():
    assert config("") == Config()


def test_labels_are_read_from_their_options():
    given = parse_options(["--tag", "baseline,paper", "--tag", "Paper", "--tag", "v2", "--note", "x"], "notebook")
    assert labels_of(given) == (None, "x", ("baseline", "paper", "v2"))
    assert specified_options(given) == ["--tag", "baseline,paper", "--tag", "Paper", "--tag", "v2", "--note", "x"]
    with pytest.raises(InvalidRequest, match="--tag: '-x' is no tag"):
        labels_of(parse_options(["--tag=-x"], "notebook"))
    with pytest.raises(InvalidRequest, match=r"--note a+\.\.\.: it has 4001 characters; write 4000 at most"):
        labels_of(parse_options(["--note", "a" * 4001], "notebook"))


def test_waiting_is_asked_refused_or_left_open():
    assert [parse_options([word], "notebook").wait for word in ("--wait", "--no-wait", "a=1")] == [True, False, None]


def test_every_setting_reaches_its_field():
    line = "--slots 2 --backend torch --threads 3 --epochs 4 --batch-size 5 --seed 6 --checkpoint-every 2epochs"
    assert config(f"{line} --max-restarts 0") == Config(
        slots=2,
        backend="torch",
        threads=3,
        epochs=4,
        batch_size=5,
        seed=6,
        checkpoint_every=Cadence(epochs=2),
        max_restarts=0,
    )
    line = "--device cpu --logical-workers 4 --steps 9 --schedule-per epoch --amp fp16 --ema 0.99 --clip 1.5"
    assert config(line) == Config(
        device="cpu", logical_workers=4, steps=9, schedule_per="epoch", amp="fp16", ema=0.99, clip=1.5
    )
    line = "--loader-workers 2 --rng stream --reproducible portable --metric f1:max --keep best:2 --hang-timeout 2m"
    assert config(line) == Config(
        loader_workers=2,
        rng="stream",
        reproducible="portable",
        metric=Metric(name="f1", mode="max"),
        keep=Keep(best=2, latest=0),
        hang_timeout=120,
    )
    assert config("--loader-workers auto") == Config()
    assert config("--batch-size auto") == Config(auto_batch=AutoBatch())
    assert config("--batch-size auto:256 --per-slot-batch").auto_batch == AutoBatch(most=256)
    line = "--pool a100 --one-node --group vision --priority -5 --preemptible --max-time 8h"
    assert config(line) == Config(
        pool="a100", one_node=True, group="vision", priority=-5, preemptible=True, max_time=28_800
    )


def test_the_longest_time_of_a_search_is_the_searchs_and_of_a_training_the_configurations():
    searched = config("--max-time 2h --search asha")
    assert (searched.max_time, searched.search.max_time) == (None, 7200)
    assert (config("--max-time 2h").max_time, config("--max-time 2h").search) == (7200, None)


def test_every_setting_of_a_search_reaches_its_field():
    line = "--search asha --trials 9 --sampler tpe --stopping --eta 3 --first-rung 2 --brackets standard --parallel 5"
    assert config(f"{line} --budget 20gpuh --max-time 8h --warm 12 --warm 9,#7.3").search == Search(
        method="asha",
        trials=9,
        sampler="tpe",
        stopping=True,
        eta=3,
        first_rung=2,
        brackets="standard",
        parallel=5,
        budget=72_000,
        max_time=28_800,
        warm=("12", "9", "7.3"),
    )
    assert config("--search pbt --population 8 --interval 2").search == Search(method="pbt", population=8, interval=2)
    assert config("--search custom:Mine").search == Search(method="custom", source="Mine")


def test_a_search_has_as_many_trials_as_its_method_usually_has_or_as_its_budget_pays():
    assert [config(f"--search {name}").search.limit for name in ("asha", "random", "sobol", "tpe", "grid")] == [
        64,
        16,
        16,
        16,
        None,
    ]
    assert config("--search asha --trials 7").search.limit == 7
    assert config("--search asha --budget 1h").search.limit is None
    assert config("--search asha --max-time 1h --trials 7").search.limit == 7


@pytest.mark.parametrize(
    ("text", "seconds"), [("20gpuh", 72_000), ("2slot-h", 7200), ("30m", 1800), ("1.5 GPU-h", 5400), ("90s", 90)]
)
def test_a_budget_counts_the_time_of_slots(text: str, seconds: float):
    assert parse_slot_time(text) == seconds


def test_log_policies_are_added_to_the_usual_ones_and_replace_those_of_the_same_pattern():
    tokens = ["--on-log", "disk (full|gone)", "cancel_retries", "--on-log", "ECC error", "cancel_retries"]
    policies = to_config(parse_options(tokens, "notebook")).on_log
    assert [(policy.pattern, policy.action) for policy in policies] == [
        ("disk (full|gone)", "cancel_retries"),
        ("ECC error", "cancel_retries"),
        ("CUDA out of memory", "cancel_retries"),
    ]


def test_values_that_are_no_text_are_taken_as_they_are():
    assert to_config(Namespace(slots=2, backend=None)) == Config(slots=2)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--slots 0", "--slots 0: must be at least 1"),
        ("--batch-size auto:0", "--batch-size auto:0: write auto, or auto:256 for at most 256 samples"),
        ("--batch-size automatic", "--batch-size automatic: must be a whole number"),
        ("--batch-size auto:9999999999", "--batch-size 9999999999: must be at most 1,000,000,000"),
        ("--epochs -3", "--epochs -3: must be at least 1"),
        ("--batch-size many", "--batch-size many: must be a whole number"),
        ("--slots 1.5", "--slots 1.5: must be a whole number"),
        ("--seed 99999999999999999999", "must be less than 9223372036854775808"),
        ("--backend mpi", "--backend mpi: must be auto, horovod or torch"),
        ("--checkpoint-every 5x", "--checkpoint-every 5x: .*60s, 10m, 1epoch or 500steps"),
        ("--slots 0 --epochs 0", "--slots 0: must be at least 1; --epochs 0: must be at least 1"),
        ("--ema 1", "--ema 1: must be less than 1"),
        ("--ema 0", "--ema 0: must be greater than 0"),
        ("--clip much", "--clip much: must be a number"),
        ("--steps 9 --epochs 3", "--steps and --epochs exclude each other"),
        ("--amp fp8", "--amp fp8: must be bf16 or fp16"),
        ("--keep all", "--keep all: 'all' is no rule of what to keep: write best:1,latest:2"),
        ("--metric x:up", "--metric x:up: 'x:up' is no metric"),
        ("--hang-timeout never", "--hang-timeout never: 'never' is no length of time"),
        ("--on-log [ cancel_retries", "--on-log \\[ cancel_retries: '\\[' is no regular expression"),
        ("--on-log a retry", "--on-log a retry: 'retry' is no action: write cancel_retries or exclude_node"),
        ("--priority 1001", "^--priority 1001: must be at most 1000$"),
        ("--priority high", "^--priority high: must be a whole number$"),
        ("--max-time soon", "^--max-time soon: 'soon' is no length of time"),
        ("--epoch 3", "no option --epoch: did you mean --epochs?"),
        ("--epoch=3", "no option --epoch: did you mean --epochs?"),
        ("--zzz", "no option --zzz: see --help"),
        ("--slots", "--slots: expected one argument"),
        ("--search best", "--search best: must be single, random, grid, .* or custom"),
        ("--search asha --trials 0", "^--trials 0: must be at least 1$"),
        ("--search asha --eta 1", "--eta 1: must be at least 2"),
        ("--search asha --first-rung 0.5", "--first-rung 0.5: must be a whole number"),
        ("--search pbt --population 1", "--population 1: must be at least 2"),
        ("--search asha --sampler best", "--sampler best: must be kde, random, "),
        ("--search asha --brackets all", "--brackets all: must be aggressive, standard or conservative"),
        ("--search asha --budget 20", "--budget 20: '20' is no time of slots: write 20gpuh, 2slot-h or 30m"),
        ("--search asha --budget 0gpuh", "--budget 0gpuh: '0gpuh' is no time of slots"),
        ("--search asha --max-time soon", "--max-time soon: 'soon' is no length of time"),
        ("--search asha --warm best", "--warm best: 'best' names no experiment"),
        ("--trials 8", "--trials belongs to a search: add --search asha"),
        ("--stopping", "--stopping belongs to a search: add --search asha"),
        ("--json", "no option --json"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(line, said):
    with pytest.raises(InvalidRequest, match=said):
        config(line)


def test_notebook_and_terminal_share_all_but_their_own():
    notebook, terminal = (
        {flag for option in options_for(host) for flag in option.flags} for host in ("notebook", "terminal")
    )
    assert notebook - terminal == {"--capture", "--no-state-check", "--out", "--view"}
    assert terminal - notebook == {"--json"}


def test_the_help_tells_the_defaults_of_the_configuration():
    for option in OPTIONS:
        record, _, field = (option.config or "").rpartition(".")
        fields = Search.model_fields if record else Config.model_fields
        default = fields[field].default if option.config else None
        if isinstance(default, int | str) and not isinstance(default, bool):
            written = "stop" if option.config == "on_nan" else default  # stored under its older word
            assert option.help.endswith(f"[{written}]"), option.flags


def test_the_help_has_the_groups():
    parser = argparse.ArgumentParser()
    add_options(parser, "notebook")
    text = parser.format_help()
    assert all(f"\n{group}:\n" in text for group in ("resources", "training", "view", "code"))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--slots 2 --backend torch --epochs 3 --seed 7 --device cpu --threads 3 --logical-workers 4 --env locked",
        "--slots 1..4 --logical-workers 4",
        "--steps 9 --batch-size 8 --schedule-per epoch --amp bf16 --ema 0.999 --clip 1.5 --loader-workers 2",
        "--accumulate 4 --compile --patience 3 --validate-every 500steps --validate-first",
        "--uneven drop --per-slot-batch --from 12.7",
        "--strategy fsdp2 --sync-bn --on-nan go_back --checkpoint-every 5steps",
        "--values 4GB",
        "--on-nan note",
        "--checkpoint-every 90s --keep best_overall:3 --metric accuracy:max --hang-timeout 1.5h --max-restarts 0",
        "--checkpoint-every 2epochs --keep latest:1 --rng stream --reproducible off",
        "--checkpoint-every 1steps --on-log gone cancel_retries",
        "--search asha --trials 256 --sampler random --stopping --eta 3 --first-rung 2 --brackets conservative",
        "--search hyperband --parallel 4 --budget 20gpuh --max-time 90m --warm 12 --warm 12.7",
        "--search pbt --population 8 --interval 2",
        "--search custom:Mine --trials 3",
        "--search grid",
        "--pool a100 --one-node --group vision --priority -5 --preemptible --max-time 90m",
    ],
)
def test_a_configuration_can_be_spelled_out_and_read_again(line):
    given = config(line)
    assert to_config(parse_options(to_options(given), "terminal")) == given


def test_a_range_of_slots_is_read_wherever_slots_are():
    assert config("--slots 2..8") == Config(slots=8, least_slots=2)
    assert config("--slots 4..4") == Config(slots=4)
    assert specified_settings(parse_options(["--slots", "3"], "terminal")) == {"slots": "3", "least_slots": None}
    assert parse_slots("1..4") == (4, 1)
    assert parse_slots("4") == (4, None)


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("4..1", "--slots 4..1: the least number comes first: 1..4"),
        ("0..4", "--slots 0..4: 0: must be a whole number from 1 to 65,536"),
        ("1..", "--slots 1..: : must be a whole number from 1 to 65,536"),
        ("1..2..3", "--slots 1..2..3: write two numbers: 1..4"),
        ("1..99999", "--slots 1..99999: 99999: must be a whole number from 1 to 65,536"),
    ],
)
def test_a_range_that_cannot_be_is_refused(word: str, says: str):
    for read in (lambda: config(f"--slots {word}"), lambda: parse_slots(word)):
        with pytest.raises(InvalidRequest, match=f"^{re.escape(says)}$"):
            read()


def test_older_words_for_what_to_do_about_nan_are_read():
    assert config("--on-nan fail") == config("--on-nan stop") == config("")
    words = to_options(config("--on-nan go-on"))
    assert words[words.index("--on-nan") + 1] == "note"


def test_validations_are_not_counted_by_the_clock():
    with pytest.raises(InvalidRequest, match="--validate-every 10m: validations are counted in epochs or steps"):
        config("--validate-every 10m")


def test_all_unknown_options_are_told_at_once():
    with pytest.raises(InvalidRequest, match=r"no option --slot: .*\nthere is no option --epoch: "):
        config("--slot 2 --epoch 3")


def test_options_that_a_program_declares_by_no_name_are_answered_by_its_command():
    with pytest.raises(InvalidRequest, match=r"of hf\.py itself write -- python hf\.py --output_dir out$"):
        config("--slots 2 hf.py --output_dir out")
    with pytest.raises(InvalidRequest, match=r"no option --slotz: did you mean --slots\?$"):
        config("--slotz 2 hf.py")


@pytest.mark.parametrize("line", ["--name digits --wait --out job --view card --again", "--no-wait --quiet", ""])
def test_how_it_is_shown_is_spelled_out_as_it_was_given(line: str):
    words = specified_options(parse_options([*line.split(), "--slots", "2", "--dry-run"], "notebook"))
    assert sorted(words) == sorted(line.split())


@pytest.mark.parametrize("text", ["10MB", "1500000", "200GB", "3kB", "64MB", "7"])
def test_sizes_are_written_as_they_are_read(text: str):
    assert parse_size(size_word(parse_size(text))) == parse_size(text)
    assert len(size_word(parse_size(text))) <= len(text)


@pytest.mark.parametrize("text", ["90s", "10m", "2h", "1.5s", "0.1s", "90m"])
def test_durations_are_written_as_they_are_read(text: str):
    assert duration_word(parse_duration(text)) == text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--lr 0.01", "there is no option --lr: a hyperparameter is written lr=0.01, by its name in the cell"),
        ("--lr=0.01", "there is no option --lr: a hyperparameter is written lr=0.01, by its name in the cell"),
        ("--learning-rate 1e-3 width=3", "a hyperparameter is written learning_rate=1e-3, by its name in the cell"),
        ("--epoch 3", "did you mean --epochs?"),
        (
            "--workers 3",
            "did you mean --loader-workers? Else: a hyperparameter is written workers=3, by its name in the cell",
        ),
        ("--quite", "did you mean --quiet?"),
        ("--lr", "there is no option --lr: see --help for those there are"),
    ],
)
def test_an_option_that_is_none_may_be_meant_as_a_hyperparameter(line: str, says: str):
    with pytest.raises(InvalidRequest) as refused:
        parse_options(line.split(), "notebook")
    assert refused.value.message.endswith(says)


@pytest.mark.parametrize(
    ("line", "write"),
    [
        ("--gpus 2", "--slots 2"),
        ("--gres=gpu:4", "--slots N"),
        ("--max_epochs 8", "--epochs 8"),
        ("--n-trials 20", "--trials 20"),
        ("--direction maximize", "--metric NAME:max"),
        ("--mode min", "--metric NAME:min"),
        ("--rehearse", "nothing in its place, as a restart is rehearsed unless --no-rehearsal forbids it"),
        ("--time 2:00:00", "--max-time 2:00:00"),
        ("--early-stopping", "--patience N"),
        ("--gradient-accumulation-steps 4", "--accumulate 4"),
        ("--label baseline", "--tag baseline"),
        ("--description x", "--note x"),
        (
            "--resume 63",
            "%dl continue 63 --epochs N to train on, or --from 63 to begin with its best weights",
        ),
    ],
)
def test_an_option_of_another_tool_is_answered_with_what_to_write_here(line: str, write: str):
    with pytest.raises(InvalidRequest) as refused:
        parse_options(line.split(), "notebook")
    assert refused.value.message == f"there is no option {line.split()[0].partition('=')[0]}: write {write}"


def test_a_terminal_is_told_its_own_verbs():
    parser = OptionParser(prog="daylight submit")
    add_options(parser, "terminal")
    with pytest.raises(InvalidRequest, match="write daylight continue 63 --epochs N"):
        parser.parse_mixed(["--resume", "63"])


def test_every_line_to_write_in_place_of_an_option_has_options_that_there_are():
    ours = {flag for option in OPTIONS for flag in option.flags}
    for line, names in INSTEAD.items():
        assert set(re.findall(r"--[a-z][\w-]*", line)) <= ours | {"--epochs"}
        assert not ours & {f"--{name}" for name in names.split()}
    every = [name for names in INSTEAD.values() for name in names.split()]
    assert len(every) == len(set(every))


@pytest.mark.parametrize(
    ("word", "method"), [("bayes", "tpe"), ("Bayesian", "tpe"), ("grid_search", "grid"), ("gp", "gp")]
)
def test_a_search_method_may_have_the_name_that_another_tool_gives_it(word: str, method: str):
    assert config(f"--search {word}").search == Search(method=method)


def test_warm_without_a_search_is_told_what_begins_with_the_weights():
    with pytest.raises(InvalidRequest, match=r"write --from 63 to begin with its best weights, or add --search asha"):
        config("--warm 63")


def test_warm_of_a_model_is_told_what_begins_with_its_weights():
    with pytest.raises(InvalidRequest, match="write --from memes@production"):
        config("--search asha --warm memes@production")


@pytest.mark.parametrize(("word", "seconds"), [("4h", 14400.0), ("10m", 600.0), ("no", 0.0)])
def test_an_allocation_is_kept_for_a_time_or_not(word, seconds):
    found = config(f"--search random --keep-allocation {word}")
    assert found.search.keep_allocation == seconds
    assert " ".join(to_options(found)).count(f"--keep-allocation {word}") == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--search random --keep-allocation 9m", "--keep-allocation 9m: must be at least 10m, or no"),
        ("--search random --keep-allocation yes", "--keep-allocation yes: 'yes' is no length of time"),
        ("--keep-allocation 4h", "--keep-allocation belongs to a search: add --search asha"),
    ],
)
def test_an_allocation_that_cannot_be_kept_is_refused(line, said):
    with pytest.raises(InvalidRequest, match=said):
        config(line)


@pytest.mark.parametrize("word", ["auto", "auto:256", "64"])
def test_a_batch_size_is_a_number_or_found_and_a_later_one_replaces_it(word: str):
    """This also holds for a rerun, which changes an earlier experiment's configuration."""
    assert config(" ".join(to_options(config(f"--batch-size {word}")))) == config(f"--batch-size {word}")
    for before in ("auto:9", "128"):
        asked = Rerun(config=specified_settings(parse_options(["--batch-size", word], "notebook")))
        assert asked.applied(config(f"--batch-size {before}")) == config(f"--batch-size {word}")
