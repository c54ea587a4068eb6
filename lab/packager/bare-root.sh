# Makes a bare Debian of the suite $suite in the current directory, once for all that try something on it, and says in $bare
# where it is. To be read by a script, which it ends with 77 where no Debian is to be had.
bare=$PWD/debian-$suite
(
    flock 9
    [ ! -d "$bare" ] || exit 0
    rm -rf "$bare-begun"
    debootstrap --variant=minbase --include=systemd-sysv,dbus,iproute2 "$suite" "$bare-begun" || exit 77
    cp /etc/resolv.conf "$bare-begun/etc/resolv.conf" && mv "$bare-begun" "$bare"
) 9> "$bare.lock" || exit 77
