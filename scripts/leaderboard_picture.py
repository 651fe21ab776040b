"""Draw what `coattail leaderboard` prints on a terminal: docs/pictures/leaderboard.svg, for README.

Run it after `make repro` of the demo: the same figures give the same bytes. A test holds the
picture against the text in docs/results/demo.md.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "leaderboard.svg"
COMMAND = ("coattail", "leaderboard")
COLUMNS, ROWS = 100, 50
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> None:
    PICTURE.write_text(drawn(printed(COMMAND)), encoding="utf-8")


def printed(command: tuple[str, ...]) -> str:
    """What a command prints on a terminal of our size, colours included."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    plain = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    environment = plain | {"TERM": "xterm-256color"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=theirs) as process:
        os.close(theirs)
        pieces = []
        while piece := read(ours):
            pieces.append(piece)
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: make repro first")
    return b"".join(pieces).decode().replace("\r\n", "\n")


def read(terminal: int) -> bytes:
    """The next piece; nothing when the other end has been closed, which Linux calls an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def drawn(text: str) -> str:
    """A window with the text, in whatever monospaced font the reader has."""
    shown = Text.from_ansi(f"$ {' '.join(COMMAND)}\n{text.rstrip()}")
    width = max(len(line) for line in shown.plain.splitlines())
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(shown, no_wrap=True)
    picture = console.export_svg(title="coattail", theme=DIMMED_MONOKAI, unique_id="leaderboard")
    picture = re.sub(r" *<!--.*?-->\n", "", FONT.sub("", picture))
    return picture.replace("Fira Code", "DejaVu Sans Mono").rstrip() + "\n"


if __name__ == "__main__":
    main()
