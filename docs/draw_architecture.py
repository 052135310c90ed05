"""Draw the architecture page's two pictures, the rooms and the processes, as SVG.

python docs/draw_architecture.py            rewrite the pictures that are out of date
python docs/draw_architecture.py --check    change nothing; exit code 1 where one is
"""

from __future__ import annotations

import sys
from html import escape
from typing import NamedTuple

from generated import DOCS, keep_current

IMAGES = DOCS / "images"
WIDTH, MARGIN, GAP = 1040, 16, 10
LINE, TITLE = 15, 22  # pixels: the height of a small line, and of a box's title

# Layers from the top to the bottom: each imports those below it. A box is a package and what is in it.
ROOMS: list[tuple[str, list[tuple[str, str]]]] = [
    (
        "edges",
        [
            ("jupyter_ext", "magics submit capture project recognise job views server hub"),
            ("cli, commands", "one table of verbs for the command line and %dl"),
            ("api", "HTTP and websocket handlers over the verbs"),
            ("runner", "definition data loop gradients metrics ranks checkpoint determinism"),
        ],
    ),
    (
        "service",
        [
            ("service", "loop state search verbs views"),
            ("workspaces, unix_users, agent", "a user's files and processes, by this process or as that Unix user"),
            ("confined", "users' code, parsed under limits"),
        ],
    ),
    (
        "seams",
        [
            ("store", "SQLite, PostgreSQL"),
            ("checkpoints, artifacts", "folders, object stores"),
            ("snapshots, data", "what was submitted: code, environments, fingerprints"),
            ("engines, launch", "gangs and their launchers"),
            ("identity", "users and their tokens"),
        ],
    ),
    (
        "decisions",
        [
            ("scheduler", "explain simulation"),
            ("lifecycle", "reconcile outcomes resume backoff"),
            ("search", "samplers simulation report"),
            ("differences", "why two results differ"),
        ],
    ),
    (
        "records",
        [
            ("model", "cluster search launch views"),
            ("definition", "the contract of a cell, read without running it"),
            ("spec", "options and hyperparameters"),
            ("routes, errors", "what is asked for and refused"),
        ],
    ),
]


class Box(NamedTuple):
    """A rectangle with a title and wrapped text; of kind `band` it is the background of a layer."""

    x: float
    y: float
    width: float
    height: float
    title: str
    text: str
    kind: str = "box"


class Arrow(NamedTuple):
    """An arrow with its label."""

    start: tuple[float, float]
    end: tuple[float, float]
    label: str
    at: tuple[float, float]  # where the label begins


def wrapped(text: str, width: float) -> list[str]:
    """Return the lines of `text` in a box of `width` pixels."""
    limit, lines = int((width - 16) / 6.7), [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > limit:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def svg(boxes: list[Box], arrows: list[Arrow], height: float, label: str) -> str:
    """Return the picture; colours follow the reader's light or dark theme."""
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}">',
        "<style>text{font:12px system-ui,sans-serif;fill:#333}.title{font-weight:600;font-size:13px}"
        ".layer{font-weight:600;fill:#666}.box{fill:#eef4fb;stroke:#5b8db8}.band{fill:#f6f6f6;stroke:none}"
        ".arrow{stroke:#555;fill:none;marker-end:url(#end)}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.layer{fill:#aaa}.box{fill:#22303d;stroke:#6fa3d0}"
        ".band{fill:#2a2a2a}.arrow{stroke:#bbb}}</style>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#777"/></marker></defs>',
    ]
    for box in boxes:
        where = f'x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}"'
        out.append(f'<rect class="{box.kind}" {where} rx="6"/>')
        if box.kind == "band":
            out.append(f'<text class="layer" x="{box.x + 10:g}" y="{box.y + box.height / 2 + 4:g}">{box.title}</text>')
            continue
        out.append(f'<text class="title" x="{box.x + 8:g}" y="{box.y + TITLE - 4:g}">{escape(box.title)}</text>')
        for number, line in enumerate(wrapped(box.text, box.width)):
            out.append(f'<text x="{box.x + 8:g}" y="{box.y + TITLE + 12 + number * LINE:g}">{escape(line)}</text>')
    for (x1, y1), (x2, y2), label, (x, y) in arrows:
        out.append(f'<path class="arrow" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>')
        out.append(f'<text x="{x:g}" y="{y:g}">{escape(label)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def rooms() -> str:
    """Return the picture of the layers: imports point downwards only."""
    boxes: list[Box] = []
    y, left = float(MARGIN), 110
    for layer, packages in ROOMS:
        width = (WIDTH - MARGIN - left - GAP * (len(packages) + 1)) / len(packages)
        height = TITLE + 14 + LINE * max(len(wrapped(text, width)) for _, text in packages)
        boxes.append(Box(MARGIN, y, WIDTH - 2 * MARGIN, height + 2 * GAP, layer, "", "band"))
        for number, (title, text) in enumerate(packages):
            boxes.append(Box(left + GAP + number * (width + GAP), y + GAP, width, height, title, text))
        y += height + 2 * GAP + GAP
    return svg(boxes, [], y + MARGIN - GAP, "The packages of Daylight in five layers; each imports those below it")


def processes() -> str:
    """Return the picture of the processes and of what they send one another."""
    boxes = [
        Box(30, 20, 210, 66, "kernel", "%%dlsubmit, %dl, the job object"),
        Box(30, 130, 210, 66, "browser", "JupyterLab panel, views, cluster page"),
        Box(30, 240, 210, 66, "Jupyter server", "passes routes on, with Jupyter's own login"),
        Box(
            420,
            100,
            250,
            112,
            "service",
            "one per user or per hub: API, control loop, searches, store (SQLite, PostgreSQL)",
        ),
        Box(800, 20, 210, 66, "search process", "a custom search class, one per search"),
        Box(800, 130, 210, 66, "agent", "one per Unix user, with --spawn-helper"),
        Box(420, 300, 250, 66, "launcher", "one per attempt and node, in a session of its own"),
        Box(800, 300, 210, 66, "forkserver", "torch imported once per environment"),
        Box(420, 440, 250, 66, "ranks", "one per slot: load, train, checkpoint"),
    ]
    arrows = [
        Arrow((240, 53), (418, 125), "REST", (330, 76)),
        Arrow((240, 163), (418, 163), "cluster page", (292, 156)),
        Arrow((135, 196), (135, 238), "REST, websocket", (143, 221)),
        Arrow((240, 273), (418, 200), "REST, websocket", (262, 302)),
        Arrow((670, 125), (798, 60), "questions", (700, 82)),
        Arrow((670, 163), (798, 163), "operations", (698, 156)),
        Arrow((500, 212), (500, 298), "launch spec", (426, 259)),
        Arrow((590, 298), (590, 214), "reports, outcome", (598, 259)),
        Arrow((670, 333), (798, 333), "rank specs", (700, 326)),
        Arrow((900, 366), (672, 465), "forks", (800, 432)),
        Arrow((500, 366), (500, 438), "instructions", (422, 406)),
        Arrow((590, 438), (590, 368), "spool, exit codes", (598, 406)),
    ]
    return svg(boxes, arrows, 530, "The processes of Daylight and what they send one another")


if __name__ == "__main__":
    pictures = {IMAGES / "rooms.svg": rooms(), IMAGES / "processes.svg": processes()}
    sys.exit(keep_current(pictures, "docs/draw_architecture.py"))
