"""The tutorials that stand beside the checkout, cut into their code blocks.

They are other people's writing and no part of this repository: where they are missing, the tests that run them say so
and pass, and our own versions under examples/ stand for them.
"""

import os
import pathlib
import re
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(os.environ.get("MILLSTREAM_SEEDS", ROOT.parent / "shared" / "seeds"))
MESSAGE_ID = "<message-id>"

# What the tutorials write for the reader's eye only.
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
    """Every fenced block of every tutorial, in order."""
    return [block for path in sorted(FOLDER.iterdir()) for block in _cut(path)]


def _cut(path):
    found = []
    fence = re.compile(r"^```(\w*)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
    for match in fence.finditer(path.read_text(encoding="utf-8")):
        found.append(Block(path.name, len(found) + 1, match.group(1), match.group(2)))
    return found


def find(marker):
    """The one block that contains `marker`."""
    found = [block for block in blocks() if marker in block.text]
    if len(found) != 1:
        raise LookupError(f"{len(found)} blocks contain {marker!r}")
    return found[0]


def is_picture(block):
    return any(mark in block.text for mark in PICTURES)


def is_transcript(block):
    """Commands for redis-cli: typed at its prompt, or after its name in a shell."""
    lines = commands(block)
    return block.language in ("", "bash", "redis") and bool(lines) and all(_is_command(line) for line in lines[:1])


def _is_command(line):
    return re.match(r"(X[A-Z]+|CLIENT)\b", line) is not None


def commands(block):
    """The commands of a transcript, one a line, as they are typed at the prompt of redis-cli."""
    text = re.sub(r"[ \t]*\\\n\s*", " ", block.text)
    lines = (line.strip() for line in text.splitlines())
    return [line.removeprefix("redis-cli ") for line in lines if line and not line.startswith("#")]
