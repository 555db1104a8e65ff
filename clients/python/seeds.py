"""Reads public tutorials from a folder next to the checkout and splits them into code blocks.

Other people wrote the tutorials, which are not part of this repository. If the tutorials are missing, the tests that
run them are skipped and say so. Our own versions are under examples/.
"""

import os
import pathlib
import re
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(os.environ.get("MILLSTREAM_SEEDS", ROOT.parent / "shared" / "seeds"))
MESSAGE_ID = "<message-id>"

# Marks of diagrams in the tutorials, which are not code.
PICTURES = ("┌", "â”Œ", "flowchart")


@dataclass(frozen=True)
class Block:
    file: str
    number: int
    language: str
    text: str

    def __str__(self):
        first = next((line for line in self.text.splitlines() if line.strip()), "")
        return f"{self.file} block {self.number} ({self.language or 'plain'}): {first.strip()}"


def present():
    return FOLDER.is_dir() and any(FOLDER.iterdir())


def blocks():
    """Returns every fenced block of every tutorial, in order."""
    return [block for path in sorted(FOLDER.iterdir()) for block in _cut(path)]


def _cut(path):
    found = []
    fence = re.compile(r"^```(\w*)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
    for match in fence.finditer(path.read_text(encoding="utf-8")):
        found.append(Block(path.name, len(found) + 1, match.group(1), match.group(2)))
    return found


def find(marker):
    """Returns the only block that contains `marker`."""
    found = [block for block in blocks() if marker in block.text]
    if len(found) != 1:
        raise LookupError(f"{len(found)} blocks contain {marker!r}")
    return found[0]


def is_picture(block):
    return any(mark in block.text for mark in PICTURES)


def is_transcript(block):
    """Whether the block has commands for redis-cli, typed at its prompt or as its arguments in a shell."""
    lines = commands(block)
    return block.language in ("", "bash", "redis") and bool(lines) and all(_is_command(line) for line in lines[:1])


def _is_command(line):
    return re.match(r"(X[A-Z]+|CLIENT)\b", line) is not None


def commands(block):
    """Returns the commands of a transcript, one per line, as typed at the prompt of redis-cli."""
    text = re.sub(r"[ \t]*\\\n\s*", " ", block.text)
    lines = (line.strip() for line in text.splitlines())
    return [line.removeprefix("redis-cli ") for line in lines if line and not line.startswith("#")]
