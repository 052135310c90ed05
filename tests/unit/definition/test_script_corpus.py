"""Test that training loops are found in every program of the corpus."""

from __future__ import annotations

import ast

import pytest

from kernel_backend.definition.script.loops import summary, training_loops
from tests.support.programs import ADVERSARIAL, PLAIN, PROGRAMS

# Where the loops of the less usual ones are: in a class, in a method, around a closure, in three depths.
PLACES = {
    "trainer_class": "epochs in line 67, batches in line 62",
    "kfold": "rounds in line 87, epochs in line 101, batches in line 56",
    "reinforce": "steps in line 88",
    "word_model": "epochs in line 120, batches in line 100",
    "image_optimization": "steps in line 29",
    "graph_network": "steps in line 75",
    "distillation": "epochs in lines 22 and 46, batches in lines 24 and 48",
    "class_body": "steps in line 11",
}


def test_the_corpus_has_the_styles_of_the_field():
    assert len(PLAIN) >= 40
    assert len(ADVERSARIAL) >= 15


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_training_loop_is_found(name):
    assert training_loops(ast.parse(PROGRAMS[name].read_text()))


@pytest.mark.parametrize("name", PLACES)
def test_the_line_of_each_loop_is_told(name):
    assert summary(training_loops(ast.parse(PROGRAMS[name].read_text()))) == PLACES[name]
