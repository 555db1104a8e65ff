#!/usr/bin/env bash
# Shows the whole life of a consumer group with redis-cli. Prints every command and its reply.
#
# Programs need more than these commands: docs/from-your-consumer.md shows what, and the shorter way.
#
#   examples/redis-cli/walkthrough.sh                 on port 6379 of this machine
#   REDIS_URL=redis://host:port examples/redis-cli/walkthrough.sh
set -euo pipefail

url=${REDIS_URL:-redis://127.0.0.1:6379}
stream=example:walkthrough

say() { printf '\n# %s\n' "$*"; }

# run COMMAND…: prints a command, runs it, and prints its reply as redis-cli does in a terminal
run() {
    printf '> %s\n' "$*"
    redis-cli -u "$url" --no-raw "$@"
}

# quiet COMMAND…: runs a command and prints only its reply
quiet() { redis-cli -u "$url" "$@"; }

quiet DEL "$stream" >/dev/null

say "Create a group. MKSTREAM creates the stream too. \$ means: deliver only entries that are added from now on."
run XGROUP CREATE "$stream" billing '$' MKSTREAM

say "Producers append entries. * lets the server generate the id; here we choose ids that are easy to recognise."
run XADD "$stream" 1-0 item wheat amount 10
run XADD "$stream" 2-0 item rye amount 20
run XADD "$stream" 3-0 item oats amount 30

say "Each entry goes to one consumer. > means: entries that were not delivered to any consumer yet."
run XREADGROUP GROUP billing anna COUNT 2 STREAMS "$stream" '>'
run XREADGROUP GROUP billing ben COUNT 2 STREAMS "$stream" '>'

say "There is no new entry: the read is blocked for 100 ms and times out."
run XREADGROUP GROUP billing ben BLOCK 100 STREAMS "$stream" '>'

say "Block again. This time a producer adds an entry."
(sleep 0.2; quiet XADD "$stream" 4-0 item spelt amount 40 >/dev/null) &
run XREADGROUP GROUP billing ben BLOCK 5000 STREAMS "$stream" '>'
wait

say "Acknowledge finished entries. Other entries stay pending."
run XACK "$stream" billing 1-0 3-0 4-0
run XPENDING "$stream" billing

say "anna has crashed. ben claims her pending entries. (Minimum idle time 0; use more in production.)"
run XAUTOCLAIM "$stream" billing ben 0 0-0
run XACK "$stream" billing 2-0

say "Inspect the group. lag is the number of entries that it has still to deliver."
run XADD "$stream" 5-0 item barley amount 50
run XINFO GROUPS "$stream"

say "Keep the two newest entries."
run XTRIM "$stream" MAXLEN = 2
run XRANGE "$stream" - +

say "Clean up."
run XGROUP DELCONSUMER "$stream" billing anna
run XGROUP DESTROY "$stream" billing
run DEL "$stream"
