#!/usr/bin/env bash
# The whole life of a consumer group at the prompt of redis-cli. Every command is shown before its reply.
#
#   examples/redis-cli/walkthrough.sh                 on the usual port
#   REDIS_URL=redis://host:port examples/redis-cli/walkthrough.sh
set -euo pipefail

url=${REDIS_URL:-redis://127.0.0.1:6379}
stream=example:walkthrough

say() { printf '\n# %s\n' "$*"; }

# Shows a command and runs it; the reply is printed as at the prompt.
run() {
    printf '> %s\n' "$*"
    redis-cli -u "$url" --no-raw "$@"
}

# Runs a command for its reply alone.
quiet() { redis-cli -u "$url" "$@"; }

quiet DEL "$stream" >/dev/null

say "A group belongs to a stream; MKSTREAM creates both. \$ means: only what comes from now on."
run XGROUP CREATE "$stream" billing '$' MKSTREAM

say "Producers append. * lets the server choose the id; here they are given, to be recognised below."
run XADD "$stream" 1-0 item wheat amount 10
run XADD "$stream" 2-0 item rye amount 20
run XADD "$stream" 3-0 item oats amount 30

say "Each entry goes to one consumer. > means: what nobody has been given yet."
run XREADGROUP GROUP billing anna COUNT 2 STREAMS "$stream" '>'
run XREADGROUP GROUP billing ben COUNT 2 STREAMS "$stream" '>'

say "Nothing new: wait for a tenth of a second, in vain."
run XREADGROUP GROUP billing ben BLOCK 100 STREAMS "$stream" '>'

say "Wait again, and be woken by a producer."
(sleep 0.2; quiet XADD "$stream" 4-0 item spelt amount 40 >/dev/null) &
run XREADGROUP GROUP billing ben BLOCK 5000 STREAMS "$stream" '>'
wait

say "Done: acknowledge. What is not acknowledged stays pending."
run XACK "$stream" billing 1-0 3-0 4-0
run XPENDING "$stream" billing

say "anna has crashed. ben takes over what she has had for long (here: for any time at all)."
run XAUTOCLAIM "$stream" billing ben 0 0-0
run XACK "$stream" billing 2-0

say "How far is the group? lag is what it has not been given yet."
run XADD "$stream" 5-0 item barley amount 50
run XINFO GROUPS "$stream"

say "Keep the two newest entries."
run XTRIM "$stream" MAXLEN = 2
run XRANGE "$stream" - +

say "The end."
run XGROUP DELCONSUMER "$stream" billing anna
run XGROUP DESTROY "$stream" billing
run DEL "$stream"
