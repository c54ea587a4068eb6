#!/bin/sh
# Runs the playground of packaging/compose in a bare Debian, as a container engine would: compose.sh SUITE PROGRAMS
#
# Its root has what the Containerfile installs, by that file's own line, and `splitter` and `splitter-demo` of the directory
# PROGRAMS. systemd-nspawn starts its entry point with the flags of compose.yaml, in a network namespace of its own, with
# all capabilities. From outside, the pages answer at the published ports, and a Prometheus with the configuration and rules
# that are mounted scrapes them under the name of the service. Then it is stopped by the file's signal, within its time.
# Ends with 77 where no bare Debian could be had. Needs root, debootstrap, systemd-container, curl, prometheus, and a mirror of
# Debian. Leaves the bare root in the current directory.
set -eu
suite=$1 programs=$2
[ "${3:-}" = inside ] || exec unshare --mount "$0" "$suite" "$(realpath "$programs")" inside
here=$(dirname "$(realpath "$0")") root=$PWD/debian-$suite-compose
compose=$here/../../packaging/compose
prefix=compose-$$
files=$(mktemp -d)

clean() {
    for pid in ${prometheus:-} ${nspawn:-}; do kill -KILL "$pid" 2>/dev/null || true; done
    [ -z "${nspawn:-}" ] || wait "$nspawn" || true
    for name in inside outside; do ip netns del "$prefix-$name" 2>/dev/null || true; done
    rm -rf "$files" "$root"
}
trap clean EXIT
trap 'exit 130' INT TERM

. "$here/bare-root.sh"
step() { echo "== $*"; }
# A list in brackets as words, and what stands behind a key.
listed() { sed -n "s/^ *$1 *\[\(.*\)\]$/\1/p" "$2" | tr -d '",'; }
valued() { sed -n "s/^ *$1: *//p" "$compose/compose.yaml"; }

step "the image's own line"
line=$(sed -e ':a' -e '/\\$/N; s/\\\n//; ta' "$compose/Containerfile" | awk '/^FROM/ { stage++ } stage == 2 && sub(/^RUN /, "")')
echo "$line"
rm -rf "$root" && cp -a "$bare" "$root"
mount --bind /proc "$root/proc"
chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -euc "$line" > "$files/apt" 2>&1 || {
    cat "$files/apt"
    umount "$root/proc"
    exit 77
}
umount "$root/proc"
cp "$programs/splitter" "$programs/splitter-demo" "$root/usr/local/bin/"

for name in inside outside; do ip netns add "$prefix-$name" && ip -n "$prefix-$name" link set lo up; done
ip -n "$prefix-inside" link add eth0 type veth peer name eth0 netns "$prefix-outside"
ip -n "$prefix-inside" address add 172.20.0.2/24 dev eth0 && ip -n "$prefix-inside" link set eth0 up
ip -n "$prefix-outside" address add 172.20.0.1/24 dev eth0 && ip -n "$prefix-outside" link set eth0 up
outside() { nsenter --net="/run/netns/$prefix-outside" "$@"; }

command="$(listed ENTRYPOINT "$compose/Containerfile") $(listed command: "$compose/compose.yaml")"
step "$command"
mkdir -p /run/systemd/nspawn && mount -t tmpfs none /run/systemd/nspawn
# shellcheck disable=SC2086 # These are words.
SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes systemd-nspawn -q -D "$root" --register=no --keep-unit --console=pipe --capability=all \
    --network-namespace-path="/run/netns/$prefix-inside" --system-call-filter="bpf perf_event_open" \
    $command < /dev/null > "$files/log" 2>&1 &
nspawn=$!
# So many times a fifth of a second until it succeeds.
until_it() {
    tries=$1 && shift
    until "$@" > "$files/answer" 2>&1; do
        tries=$((tries - 1))
        if [ "$tries" -le 0 ] || ! kill -0 "$nspawn" 2> /dev/null; then
            echo "never came: $*"
            cat "$files/answer" "$files/log"
            exit 1
        fi
        sleep 0.2
    done
}
for port in 9461 9462; do until_it 300 outside curl -sSf "http://172.20.0.2:$port/ready"; done
until_it 300 sh -c "nsenter --net=/run/netns/$prefix-outside curl -sSf http://172.20.0.2:9461/metrics | grep -q '^splitter_flows_started_total [1-9]'"
step "both borders are ready, and flows start"

step "Prometheus with what is mounted into its container"
sed -n 's,^ *- \(\.[^:]*\):/etc/prometheus/[^:]*:ro$,\1,p' "$compose/compose.yaml" | while read -r file; do cp "$compose/$file" "$files/"; done
echo "172.20.0.2 playground" > "$files/hosts"
unshare --mount sh -euc "mount --bind '$files/hosts' /etc/hosts
    exec nsenter --net=/run/netns/$prefix-outside prometheus --config.file='$files/prometheus.yml' \
        --storage.tsdb.path='$files/data'" > "$files/prometheus.log" 2>&1 &
prometheus=$!
asked() { outside curl -sSfG http://127.0.0.1:9090/api/v1/query --data-urlencode "query=$1" | grep -q "\"$2\"\]"; }
until_it 300 asked 'count(up == 1)' 2
until_it 300 asked 'count(splitter_build_info)' 2
until_it 300 asked 'count(count by (instance) (splitter:flow_table:ratio))' 2

step "stopped by $(valued stop_signal), within $(valued stop_grace_period)"
seconds=$(valued stop_grace_period)
kill -s "$(valued stop_signal | sed s/^SIG//)" "$(pgrep -P "$nspawn" | head -n 1)"
tries=$((${seconds%s} * 5))
while kill -0 "$nspawn" 2> /dev/null; do
    tries=$((tries - 1)) && sleep 0.2
    [ "$tries" -gt 0 ] || { echo "it goes on"; exit 1; }
done
status=0 && wait "$nspawn" || status=$?
nspawn=
grep -q "All of it is gone." "$files/log" && [ "$status" = 0 ] || { echo "ended with $status"; cat "$files/log"; exit 1; }
echo "$suite: the playground ran and ended as a container"
