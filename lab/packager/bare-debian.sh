#!/bin/sh
# Installs a deb of the splitter on a bare Debian as a new user would, and times that: bare-debian.sh SUITE DEB
#
# SUITE is bookworm, trixie or what else debootstrap knows. Its root is booted by systemd-nspawn, as the border of a site in
# network namespaces: package, configuration, service, first verified split; then a reload, an upgrade beside a flow, removal
# and purge. Any step that fails ends it, with 77 where no bare Debian could be had. Needs root, debootstrap,
# systemd-container, python3 and a mirror of Debian. Leaves the bare root, and the one that it tried in, in the current
# directory; a second run begins with the former.
set -eu
suite=$1 deb=$2
[ "${3:-}" = inside ] || exec unshare --mount "$0" "$suite" "$(realpath "$deb")" inside
root=$PWD/debian-$suite-tried
namespaces="border host other far"
prefix=bare-$$

clean() {
    for pid in ${nspawn:-} ${far:-} ${host:-}; do kill "$pid" 2>/dev/null || true; done
    [ -z "${nspawn:-}" ] || wait "$nspawn" || true
    for name in $namespaces; do ip netns del "$prefix-$name" 2>/dev/null || true; done
}
trap clean EXIT
trap 'exit 130' INT TERM

. "$(dirname "$0")/bare-root.sh"
rm -rf "$root" && cp -a "$bare" "$root"
cp "$deb" "$root/root/splitter.deb"

# Two sites: a host, this border, the other one, a host there.
for name in $namespaces; do ip netns add "$prefix-$name" && ip -n "$prefix-$name" link set lo up; done
at() { name=$1 && shift && ip netns exec "$prefix-$name" "$@"; }
cable() { ip -n "$prefix-$1" link add "$2" type veth peer name "$2" netns "$prefix-$3"; }
address() { ip -n "$prefix-$1" address add "$3/24" dev "$2" && ip -n "$prefix-$1" link set "$2" up; }
cable border eth0 host && cable border wan0 other && cable border wan1 other && cable other eth0 far
address border eth0 10.1.0.1 && address border wan0 192.0.2.2 && address border wan1 198.51.100.2
address host eth0 10.1.0.2 && address far eth0 10.2.0.5
address other wan0 192.0.2.1 && address other wan1 198.51.100.1 && address other eth0 10.2.0.1
for name in border other; do
    at $name sysctl -qw net.ipv4.ip_forward=1
    for device in all eth0 wan0 wan1; do at $name sysctl -qw "net.ipv4.conf.$device.rp_filter=0"; done
done
ip -n "$prefix-border" route add default via 192.0.2.1 && ip -n "$prefix-host" route add default via 10.1.0.1
ip -n "$prefix-other" route add 10.1.0.0/24 via 192.0.2.2 && ip -n "$prefix-far" route add default via 10.2.0.1

now() { date +%s%3N; }
seconds() { echo "$(($2 - $1))" | sed -E 's/^(.*)(...)$/\1.\2/; s/^\./0./'; }
step() { echo "== $*"; }

step "apt-get install ./splitter.deb"
begin=$(now)
mount --bind /proc "$root/proc"
chroot "$root" apt-get -q update > /dev/null || { umount "$root/proc"; exit 77; }
chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get -qy install /root/splitter.deb
umount "$root/proc"
installed=$(now)

step "a running systemd, which is no time of the user's"
mkdir -p /run/systemd/nspawn && mount -t tmpfs none /run/systemd/nspawn
SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes systemd-nspawn -q -D "$root" --register=no --keep-unit --boot --console=pipe \
    --network-namespace-path="/run/netns/$prefix-border" --capability=all --system-call-filter="bpf perf_event_open" \
    < /dev/null > "$root.log" 2>&1 &
nspawn=$!
inside() { nsenter -t "$first" -a sh -euc "$*"; }
tries=0
until first=$(pgrep -P "$nspawn" | head -n 1) && [ -n "$first" ] && inside 'systemctl is-system-running' | grep -qE 'running|degraded'; do
    tries=$((tries + 1))
    if [ $tries -ge 200 ] || ! kill -0 "$nspawn"; then
        echo "no systemd came up:"
        cat "$root.log"
        exit 1
    fi
    sleep 0.2
done 2> /dev/null
# Outside of containers systemd mounts it itself.
inside 'mountpoint -q /sys/fs/bpf || { mount -t bpf -o mode=700 bpf /sys/fs/bpf && systemd-tmpfiles --create splitter.conf; }'

configured=$(now)
inside 'cat > /etc/splitter/splitter.toml' <<'END'
lan = ["eth0"]

[short]
device = "wan0"
gateway = "192.0.2.1"
rate_mbit = 100

[long]
device = "wan1"
gateway = "198.51.100.1"
rate_mbit = 100
END
for command in "splitter check" "splitter doctor" "splitter plan" "systemctl enable --now splitter" \
    "systemctl is-active splitter" "splitter verify --to 10.2.0.5"; do
    step "$command"
    inside "$command" || { inside 'journalctl --no-pager -u splitter | tail -n 40'; exit 1; }
done
verified=$(now)

step "systemctl reload splitter"
inside 'systemctl reload splitter && systemctl is-active splitter'
inside 'systemctl show splitter -p Type -p User -p WatchdogUSec -p StatusText' | tee "$root.show"
grep -qx User=splitter "$root.show" && grep -qx Type=notify "$root.show"

step "an upgrade beside a flow"
dpkg-deb -R "$deb" "$root/root/newer"
sed -i 's/^Version: .*/Version: 99-1/' "$root/root/newer/DEBIAN/control"
dpkg-deb -b --root-owner-group "$root/root/newer" "$root/root/newer.deb" > /dev/null
at far python3 -c '
import socket
connection, _ = socket.create_server(("10.2.0.5", 7)).accept()
while data := connection.recv(65536):
    connection.sendall(b"x")
' &
far=$!
tries=0
until at far ss -Hltn 'sport = 7' | grep -q . || [ $tries -ge 100 ]; do tries=$((tries + 1)) && sleep 0.1; done
at host python3 -c '
import socket, time
connection, slowest, end = socket.create_connection(("10.2.0.5", 7), timeout=5), 0, time.time() + 8
while time.time() < end:
    begin = time.time()
    connection.sendall(b"y" * 1000)
    connection.recv(65536)
    slowest = max(slowest, time.time() - begin)
    time.sleep(0.005)
print("slowest exchange beside the upgrade: %.1f ms" % (slowest * 1e3))
' &
host=$!
before=$(inside 'systemctl show -p MainPID --value splitter')
sleep 1
inside 'dpkg -i /root/newer.deb'
wait "$host"
after=$(inside 'systemctl show -p MainPID --value splitter')
inside 'systemctl is-active splitter'
[ "$before" != "$after" ]
echo "sent again by the host: $(at host nstat -asz TcpRetransSegs | awk '/Retrans/ { print $2 }')"

step "removal, which leaves the configuration and nothing at work; then purge"
inside 'apt-get -qy remove splitter && test -e /etc/splitter/splitter.toml && test ! -e /sys/fs/bpf/splitter'
inside "! ip rule show | grep -q 'proto 94'"
inside 'apt-get -qy purge splitter && test ! -e /etc/splitter'

echo "$suite: $(seconds "$begin" "$installed") s to install, $(seconds "$configured" "$verified") s from there to a verified split"
