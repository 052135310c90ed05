"""Test that cells on which the submitted cell does not depend are not captured."""

from __future__ import annotations

from jupyter_ext.capture import Cell, capture_cell

USE = "def result(): return {}"


def source(history: list[str | Cell], expression: str) -> str:
    return capture_cell(history, USE.format(expression)).source


def test_exploration_stays_behind():
    history = ["x = 1", "import seaborn as sns", "sns.set()", "y = x + 1\nprint(y)", "z = [y] * 1000"]
    assert source(history, "x") == "# cell [1]\nx = 1\n\n# cell [6]\ndef result(): return x\n"


def test_a_shown_value_is_no_change():
    history = [Cell("xs = [1]"), Cell("f = print"), Cell("f(xs)", displayed=True), Cell("xs.append(2)", displayed=True)]
    found = source(history, "xs")
    assert "f(xs)" not in found
    assert "append" in found


def test_looking_at_a_table_and_drawing_it_stay_behind():
    history = ["import pandas as pd\nimport matplotlib.pyplot as plt", "df = pd.DataFrame({'a': [1]})"]
    history += ["df.head()", "df['a'].hist(); plt.show()", "plt.plot(df['a'])", "df['b'] = 2"]
    found = source(history, "df")
    assert "df['b'] = 2" in found
    assert not any(each in found for each in ("head", "hist", "plot"))


def test_a_heavy_cell_whose_model_is_not_asked_for_stays_behind():
    fit = Cell("def fit(model, rows):\n    for row in rows: model.step(row)\nfit(net, rows)", seconds=900.0)
    history = [Cell("rows = [1, 2]"), Cell("class Net:\n    def step(self, row): self.w = row\nnet = Net()"), fit]
    assert "fit" not in source(history, "rows")
    assert "fit(net, rows)" in source(history, "net.w")


def test_a_class_and_a_change_that_belong_to_others_stay_behind():
    history = ["class A:\n    n = 1", "class B:\n    n = 2", "B.n = 3", "b = B()\nb.more = A", "a = A()\na.n = 4"]
    found = source(history, "a")
    assert "class B" not in found
    assert "a.n = 4" in found


def test_a_copy_that_is_changed_stays_behind():
    found = source(["import copy", "xs = [1]", "ys = copy.deepcopy(xs)", "ys.append(2)"], "xs")
    assert "ys" not in found


def test_paths_and_variables_come_along_though_nothing_names_them():
    assert "sys.path.append('lib')" in source(["import sys", "sys.path.append('lib')", "import math"], "math.pi")


def test_a_required_argument_of_a_role_brings_the_function_of_that_name():
    history = ["def root(): return 'x'", "def dataset(root): return root", "def unused(): ..."]
    found = capture_cell(history, "def train_data(dataset): return dataset").source
    assert "def root" in found
    assert "def dataset" in found
    assert "unused" not in found


def test_a_slice_is_of_statements_and_not_of_lines():
    found = source(["a = 1; secret = 'zzz'; b = 2  # of both"], "a, b")
    assert found == "# cell [1]\na = 1\n\nb = 2  # of both\n\n# cell [2]\ndef result(): return a, b\n"
    assert (
        source(["ä = 'ü'; x = [\n    1,\n]; y = 3; z = 4"], "y")
        == "# cell [1]\ny = 3\n\n" + "# cell [2]\n" + USE.format("y") + "\n"
    )


def test_a_statement_on_a_shared_line_keeps_its_place():
    capture = capture_cell(["# of c\nc = 1; a = [\n    3,\n]"], USE.format("a"))
    lines = capture.source.split("\n")
    assert capture.where(lines.index("    3,") + 1) == "cell [1] line 3"
    assert "of c" not in capture.source
