"""Draw the Mermaid state diagrams of a page as SVG, with a table of their events: no script, no network."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

Point = tuple[float, float]
ARROW = re.compile(r"^    (\w+) --> (\w+): (.*)$", re.MULTILINE)
FIRST = re.compile(r"\[\*\] --> (\w+)")
LAST = re.compile(r"(\w+) --> \[\*\]")
WIDTH, HEIGHT, ACROSS, DOWN, BEND = 104, 34, 172, 108, 0.13
# Column and row of each state, by machine.
PLACES: list[dict[str, Point]] = [
    {"active": (0, 1), "paused": (1, 0), "stopping": (1, 2), "completed": (2, 1), "failed": (2, 0), "stopped": (2, 2)},
    {
        "queued": (0, 1.5),
        "starting": (1.2, 1),
        "running": (2.4, 1),
        "releasing": (2.4, 2),
        "paused": (1.2, 2.6),
        "stopping": (2.4, 3.1),
        "failed": (3.6, 0.2),
        "completed": (3.6, 1.4),
        "stopped": (3.6, 2.6),
        "pruned": (3.6, 3.6),
    },
    {"pending": (0, 0), "placed": (1, 0), "running": (2, 0), "ending": (3, 0), "ended": (2, 1)},
]


def centre(place: Point) -> Point:
    """Return the centre of the box at a column and a row."""
    return place[0] * ACROSS + WIDTH / 2 + 24, place[1] * DOWN + HEIGHT / 2 + 24


def border(at: Point, to: Point) -> Point:
    """Return where the line from a box's centre towards a point leaves the box."""
    x, y = to[0] - at[0], to[1] - at[1]
    scale = min((WIDTH / 2 + 3) / abs(x) if x else 1e9, (HEIGHT / 2 + 3) / abs(y) if y else 1e9)
    return at[0] + x * scale, at[1] + y * scale


def arrow(a: Point, b: Point) -> str:
    """Return a curve from one box to another; there and back bend to different sides."""
    x, y = b[0] - a[0], b[1] - a[1]
    middle = (a[0] + b[0]) / 2 + y * BEND, (a[1] + b[1]) / 2 - x * BEND
    (x0, y0), (x1, y1) = border(a, middle), border(b, middle)
    return f'<path d="M{x0:.0f} {y0:.0f} Q{middle[0]:.0f} {middle[1]:.0f} {x1:.0f} {y1:.0f}"/>'


def loop(at: Point) -> str:
    """Return a curve from a box to itself."""
    x, y = at[0], at[1] - HEIGHT / 2 - 2
    return (
        f'<path d="M{x - 14:.0f} {y:.0f} C{x - 22:.0f} {y - 26:.0f} {x + 22:.0f} {y - 26:.0f} {x + 14:.0f} {y:.0f}"/>'
    )


def box(state: str, at: Point, kind: str) -> str:
    """Return a state's box: thick where a machine begins, doubled where it may end."""
    x, y = at[0] - WIDTH / 2, at[1] - HEIGHT / 2
    inner = (
        f'<rect x="{x + 3}" y="{y + 3}" width="{WIDTH - 6}" height="{HEIGHT - 6}" rx="6"/>' if kind == "last" else ""
    )
    return (
        f'<g class="state {kind}"><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8"/>{inner}'
        f'<text x="{at[0]}" y="{at[1] + 5}">{state}</text></g>'
    )


def picture(source: str) -> str:
    """Return the diagram as SVG; raises StopIteration where a state has no place."""
    edges = [found[:2] for found in ARROW.findall(source)]
    states = dict.fromkeys(state for edge in edges for state in edge)
    places = {
        state: centre(place) for state, place in next(each for each in PLACES if states.keys() == each.keys()).items()
    }
    kinds = dict.fromkeys(LAST.findall(source), "last") | dict.fromkeys(FIRST.findall(source), "first")
    drawn = [loop(places[a]) if a == b else arrow(places[a], places[b]) for a, b in edges]
    drawn += [box(state, at, kinds.get(state, "")) for state, at in places.items()]
    width, height = (max(at[axis] for at in places.values()) for axis in (0, 1))
    label = "; ".join(f"{a} to {b}" for a, b in edges)
    return (
        f'<svg class="states" role="img" aria-label="{label}" viewBox="0 0 {width + WIDTH / 2 + 24:.0f} '
        f'{height + HEIGHT / 2 + 24:.0f}"><defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        f'markerHeight="8" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z"/></marker></defs>{"".join(drawn)}</svg>'
    )


def table(source: str) -> str:
    """Return the events as an HTML table: state, event, next state."""
    rows = []
    for state, edges in groupby(ARROW.findall(source), key=lambda each: each[0]):
        told = [f"<td>{events}</td><td>{target}</td>" for _, target, events in edges]
        rows += [
            f'<tr><th rowspan="{len(told)}">{state}</th>{told[0]}</tr>',
            *(f"<tr>{each}</tr>" for each in told[1:]),
        ]
    head = "<thead><tr><th>state</th><th>event</th><th>next state</th></tr></thead>"
    body = f"<tbody>{''.join(rows)}</tbody>"
    return f'<div class="pst-scrollable-table-container"><table class="table">{head}{body}</table></div>'


class StateDiagrams(SphinxTransform):
    """Replace each Mermaid block by its picture and its table."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        """Draw the diagrams of one page."""
        for node in list(self.document.findall(nodes.literal_block)):
            if node.get("language") == "mermaid":
                source = node.astext()
                node.replace_self(nodes.raw("", picture(source) + table(source), format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform with Sphinx."""
    app.add_transform(StateDiagrams)
    return {"parallel_read_safe": True}
