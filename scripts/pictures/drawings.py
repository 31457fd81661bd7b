"""Write the drawings of docs/topics/concepts.md: `make pictures ARGS=drawings`.

Each drawing contains light and dark colours, and uses those of the reader's system.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = (
    "topics/drawings/flow.svg",
    "topics/drawings/swap.svg",
    "topics/drawings/kept.svg",
    "topics/drawings/candidate.svg",
)
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1d2733; text-anchor: middle; dominant-baseline: central }
.small { font-size: 11.5px; fill: #51606f }
.left { text-anchor: start }
rect { fill: #fff; stroke: #8795a5; rx: 6px }
.now { fill: #d9f0ec; stroke: #0b7a6b } .next { fill: #fdeed6; stroke: #a86400 } .past { stroke-dasharray: 4 3 }
path { fill: none; stroke: #51606f; stroke-width: 1.5; marker-end: url(#tip) }
.maybe { stroke-dasharray: 5 4 } .plain { marker-end: none } #tip path { fill: #51606f; stroke: none; marker-end: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6ecf2 } .small { fill: #a9b6c3 } rect { fill: #1c2530; stroke: #66778a }
  .now { fill: #0f3d37; stroke: #3fbfa9 } .next { fill: #43300f; stroke: #e0a34a }
  path { stroke: #a9b6c3 } #tip path { fill: #a9b6c3 }
}"""
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z"/></marker>'
)


class Drawing:
    """A drawing: boxes, texts and arrows, in the order in which they are added."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size, self._title = (width, height), title
        self._parts: list[str] = []

    def box(self, x: int, y: int, width: int, height: int, *lines: str, kind: str = "") -> None:
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}"/>')
        for index, line in enumerate(lines):
            self.text(
                x + width // 2,
                y + height // 2 + 17 * index - 17 * (len(lines) - 1) // 2,
                line,
                "small" if index else "",
            )

    def text(self, x: int, y: int, text: str, kind: str = "small") -> None:
        self._parts.append(f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>')

    def arrow(self, *points: tuple[int, int], kind: str = "") -> None:
        way = " ".join(f"{x} {y}" for x, y in points)
        self._parts.append(f'<path class="{kind}" d="M{way}"/>')

    def svg(self) -> str:
        width, height = self._size
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
        return "\n".join(
            [
                head,
                f"<title>{escape(self._title)}</title>",
                f"<style>{STYLE}</style>",
                f"<defs>{TIP}</defs>",
                *self._parts,
                "</svg>",
                "",
            ]
        )


def flow() -> Drawing:
    """Draw the topics, one generation, the names, and their readers."""
    it = Drawing(760, 220, "Topics are read by the sources of a generation; names show its tables to viewers and sinks")
    it.box(185, 28, 310, 158, kind="past")
    for y, topic in ((40, "users"), (130, "accounts")):
        it.box(10, y, 110, 40, topic)
        it.arrow((120, y + 20), (200, y + 20))
        it.box(200, y, 110, 40, topic, "source")
        it.arrow((310, y + 20), (350, 105 if y < 100 else 110))
    it.text(65, 20, "Kafka topics")
    it.text(340, 203, "generation 1: one plan at work")
    it.box(350, 80, 130, 50, "final_ui", "view: a join", kind="now")
    it.arrow((480, 105), (545, 105))
    it.box(545, 80, 95, 50, "names", "never change")
    it.arrow((640, 95), (680, 60))
    it.arrow((640, 115), (680, 150))
    it.box(680, 40, 72, 40, "viewers")
    it.box(680, 130, 72, 40, "sinks", "topics")
    return it


def swap() -> Drawing:
    """Draw a swap and a rollback over time."""
    it = Drawing(
        760, 250, "A swap builds generation 2 beside generation 1, moves the names, and lets generation 1 linger"
    )
    it.box(90, 40, 290, 44, "generation 1: published", kind="now")
    it.box(380, 40, 150, 44, "lingers", "still reads", kind="past")
    it.text(45, 62, "g1")
    it.box(190, 120, 190, 44, "generation 2: built", "reads, catches up", kind="next")
    it.box(380, 120, 350, 44, "generation 2: published", kind="now")
    it.text(45, 142, "g2")
    it.arrow((190, 215), (190, 166))
    it.text(190, 230, "control message")
    it.arrow((380, 215), (380, 30), kind="maybe plain")
    it.text(380, 230, "publish: all names move in one transaction")
    it.text(455, 20, "rollback here: at once")
    it.text(545, 62, "retired: tables removed", "small left")
    return it


def candidate() -> Drawing:
    """Draw a candidate that waits for a decision."""
    it = Drawing(760, 210, "A candidate is built and reads on, but is not published until somebody says so")
    it.box(20, 30, 220, 50, "generation 1: published", "what everybody sees", kind="now")
    it.box(20, 130, 220, 50, "generation 2: candidate", "built, reads on, final_ui@2", kind="next")
    it.arrow((240, 55), (330, 95))
    it.arrow((240, 155), (330, 115))
    it.box(330, 80, 150, 50, "difference", "rows, columns, counts")
    it.arrow((480, 95), (570, 55))
    it.arrow((480, 115), (570, 155))
    it.box(570, 30, 170, 50, "publish", "the names move at once", kind="now")
    it.box(570, 130, 170, 50, "discard, or it expires", "nobody has noticed", kind="past")
    return it


def kept() -> Drawing:
    """Draw the rows that a swap reads and those that it keeps."""
    it = Drawing(760, 220, "A swap of the users' topic reads the new topic and copies the rows of the accounts")
    it.box(20, 30, 300, 160, kind="past")
    it.box(440, 30, 300, 160, kind="past")
    it.text(170, 205, "generation 1")
    it.text(590, 205, 'generation 2, by {"usersTopic": "users2"}')
    it.box(50, 50, 240, 44, "users_ui", "rows of topic users", kind="now")
    it.box(50, 125, 240, 44, "accounts_ui", "rows of topic accounts", kind="now")
    it.box(470, 50, 240, 44, "users_ui", "read: topic users2", kind="next")
    it.box(470, 125, 240, 44, "accounts_ui", "kept: no record is read again", kind="now")
    it.arrow((290, 147), (470, 147))
    it.text(380, 133, "rows and offsets")
    it.arrow((590, 8), (590, 50))
    it.text(650, 15, "from Kafka")
    return it


def drawn() -> dict[Path, str]:
    """Return the SVG text of each drawing, by its file."""
    return dict(
        zip((DOCS / name for name in PICTURES), (draw().svg() for draw in (flow, swap, kept, candidate)), strict=True)
    )


def main() -> None:
    for file, text in drawn().items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
