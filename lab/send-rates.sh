#!/bin/bash
# What `cloudburst send` makes of links of several rates, with defaults and keys.
#
#     cargo build --release -p cloudburst-cli
#     lab/send-rates.sh [--bytes N] [MBIT...]      # as root; 0 is a link without a limit
#
# Two network namespaces, a veth between them, and at both ends a token bucket (tbf) whose queue holds
# 20 ms, 15 kB at least. Needs jq. Prints a row for each rate, and ends with 1 if a file did not arrive as it was.
# CLOUDBURST names another program.
set -euo pipefail

program=${CLOUDBURST:-${CARGO_TARGET_DIR:-$(dirname "$0")/../target}/release/cloudburst}
program=$(realpath "$program")
bytes=50000000
if [ "${1:-}" = --bytes ]; then
    bytes=$2
    shift 2
fi
[ $# -gt 0 ] || set -- 0 1000 100 10 1

files=$(mktemp -d)
name=send-rates-$$
server=
cleanup() {
    [ -z "$server" ] || kill "$server" || true
    for end in a b; do ip netns del "$name-$end" 2>/dev/null || true; done
    rm -rf "$files"
}
trap cleanup EXIT

"$program" keygen "$files/client.key" >"$files/allowed" 2>/dev/null
"$program" keygen "$files/server.key" >"$files/server.pub" 2>/dev/null
head -c "$bytes" /dev/urandom >"$files/file"

run() {
    local mbit=$1 end queue result
    for end in a b; do ip netns add "$name-$end"; done
    ip -n "$name-a" link add e0 type veth peer name e0 netns "$name-b"
    ip -n "$name-a" address add 10.0.0.1/24 dev e0
    ip -n "$name-b" address add 10.0.0.2/24 dev e0
    for end in a b; do
        ip -n "$name-$end" link set e0 up
        [ "$mbit" = 0 ] && continue
        queue=$((mbit * 1000000 / 8 / 50))
        [ "$queue" -lt 15000 ] && queue=15000
        tc -n "$name-$end" qdisc add dev e0 root tbf rate "${mbit}mbit" \
            burst $((mbit * 125 + 3000)) limit "$queue"
    done
    mkdir "$files/$mbit"
    ip netns exec "$name-b" "$program" serve --key-file "$files/server.key" --allow "$files/allowed" \
        --mode files --output "$files/$mbit" 2>/dev/null &
    server=$!
    sleep 1
    result=$(ip netns exec "$name-a" "$program" send "$files/file" 10.0.0.2:4433 --json \
        --key-file "$files/client.key" --peer-key "$files/server.pub" 2>/dev/null) || true
    cmp -s "$files/file" "$files/$mbit/file" || { echo "$mbit: it is not there: $result"; return 1; }
    local dropped
    dropped=$(tc -n "$name-a" -s qdisc show dev e0 | sed -n 's/^ Sent .*(dropped \([0-9]*\),.*/\1/p')
    kill "$server" && wait "$server" || true
    server=
    for end in a b; do ip netns del "$name-$end"; done
    rm -rf "${files:?}/$mbit"
    jq -r --arg rate "$mbit" --arg dropped "$dropped" \
        '"| \($rate) | \(.seconds * 100 | round / 100) | \(.bytes * 8 / .seconds / 1e4 | round / 100) | \((.symbols_sent / .symbols - 1) * 1000 | round / 10) % | \($dropped) |"' <<<"$result"
}

echo "| link, Mbit/s | seconds | Mbit/s of the file | packets beyond those of the file | dropped by the queue |"
echo "|---|---|---|---|---|"
for mbit in "$@"; do run "$mbit"; done
