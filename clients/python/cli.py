"""Runs redis-cli sessions, and normalizes the printed text so that two servers can be compared."""

import re
import subprocess

import target

END = "--end-of-reply--"

# The output formats of redis-cli: for a pipe, for a terminal, for a terminal in RESP3, CSV and JSON.
MODES = {
    "piped": [],
    "terminal": ["--no-raw"],
    "terminal, RESP3": ["-3", "--no-raw"],
    "csv": ["--csv"],
    "json": ["--json"],
}


class Session:
    """One redis-cli process. `run` types a line and returns exactly the text that was printed for it."""

    def __init__(self, port, options=()):
        self._process = subprocess.Popen(
            ["redis-cli", "-h", target.HOST, "-p", str(port), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Replies can contain any byte; latin-1 maps each byte to a character.
            encoding="latin-1",
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=10)

    def run(self, typed):
        # ECHO marks the end of the reply, because redis-cli prints no separator.
        self._process.stdin.write(f'{typed}\nECHO "{END}"\n')
        self._process.stdin.flush()
        printed = []
        while True:
            text = self._process.stdout.readline()
            if not text:
                raise ConnectionError(f"redis-cli ended at: {typed}")
            if text.strip().strip('"') == END:
                return "".join(printed)
            printed.append(text)


class Normal:
    """Replaces generated ids, times and idle times by placeholders. The same id always gets the same placeholder."""

    def __init__(self):
        self._names = {}

    def text(self, line, printed):
        printed = re.sub(r"\b\d{13}-\d+\b", lambda match: self._name(match.group()), printed)
        printed = re.sub(r"\b\d{13}\b", "<time>", printed)
        if re.match(r"CLIENT LIST", line, re.IGNORECASE):
            return _names_of_clients(printed)
        if re.match(r"XPENDING \S+ \S+ .", line, re.IGNORECASE):
            return _hide_third_of_four(printed)
        if re.match(r"XINFO CONSUMERS", line, re.IGNORECASE):
            return _hide_idle(printed)
        if re.match(r"XINFO STREAM", line, re.IGNORECASE):
            return _without_idempotence(printed)
        return printed

    def _name(self, id):
        return self._names.setdefault(id, f"<id {len(self._names) + 1}>")


def _names_of_clients(printed):
    return "\n".join(sorted(re.findall(r" (name=\S*)", printed)))


def _hide_third_of_four(printed):
    """Hides the idle time of XPENDING, which is the third of four values in every format."""
    printed = re.sub(r"(3\) \(integer\)) \d+", r"\1 <idle>", printed)
    printed = re.sub(r"((?:>|-\d+)\n\S+\n)\d+(\n\d+)", r"\1<idle>\2", printed)
    return re.sub(r'((?:^|[\[,])"?[^",\n]+"?,"?[^",\n]+"?,)\d+(,\d+)', r"\1<idle>\2", printed)


def _hide_idle(printed):
    """Hides `idle`, and removes `inactive`, which Redis returns since 7.2."""
    printed = re.sub(r"\n\s*(?:\d+\) |\d+# )?\"?inactive\"?(?: => |\n\s*(?:\d+\) )?)\(?(?:integer)?\)? ?-?\d+", "", printed)
    printed = re.sub(r',"inactive"[,:]-?\d+', "", printed)
    return re.sub(r"(\"?idle\"?(?: => |[,:]|\n\s*(?:\d+\) )?)(?:\(integer\) )?)\d+", r"\1<idle>", printed)


def _without_idempotence(printed):
    """Removes six fields that Redis returns since 8.6, and the line numbers that they shift."""
    name = r"\"?(?:idmp-duration|idmp-maxsize|pids-tracked|iids-tracked|iids-added|iids-duplicates)\"?"
    printed = re.sub(rf"{name}[,:]\d+,", "", printed)
    value = r"(?: => |\n ?(?:\d+\) )?)(?:\(integer\) )?\d+\n"
    printed = re.sub(rf"^ ?(?:\d+\) |\d+# )?{name}{value}", "", printed, flags=re.MULTILINE)
    return re.sub(r"^ ?\d+([)#]) ", r"*\1 ", printed, flags=re.MULTILINE)


# Error texts that changed in Redis 7.2: command, old text, new text.
REWORDED = [
    (
        "XREAD",
        "Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
        "Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.",
    ),
    (
        "XREADGROUP",
        "Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
        "Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.",
    ),
]


def modernised(line, printed):
    """Replaces error texts of Redis 7.0 by those of newer versions."""
    # Since 8.6 the error about an unknown command without arguments has no empty list of arguments.
    printed = re.sub(r", with args beginning with: $", "", printed, flags=re.MULTILINE)
    for command, old, new in REWORDED:
        if line.upper().split()[0] == command:
            printed = printed.replace(old, new)
    return printed
