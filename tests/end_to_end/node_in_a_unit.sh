# On a machine, as root, in the folder with the server's files: runs the server in its unit, and tries what holds its workers.
# Prints "what: how" lines, then the server's log.
set -eu
cd "$(dirname "$0")"
install -D -m 755 tnr-gpu-server /usr/bin/tnr-gpu-server
install -D -m 644 libcuda-emulated.so.1 /usr/lib/tnr/libcuda-emulated.so.1
install -m 644 tnr-gpu-server.service /etc/systemd/system/
install -m 644 tnr-gpu-server.sysusers /usr/lib/sysusers.d/tnr-gpu-server.conf
systemd-sysusers
printf '%s\n' 'plain = true' 'emulate = "h100"' 'emulated-memory = 64' 'host-memory-mib = 64' >/etc/tnr-gpu-server.conf
systemctl daemon-reload
systemctl restart tnr-gpu-server
group=/sys/fs/cgroup/system.slice/tnr-gpu-server.service

# Asks until it is so: an emulated machine on a busy host is slow.
until_true() {
    for _ in $(seq 600); do
        ! "$@" || return 0
        sleep 0.2
    done
    echo "not so: $*; $(journalctl -u tnr-gpu-server -q --no-pager)" >&2
    return 1
}
# Has $found be the folder of the waiting worker's group: another than $1.
is_there() {
    for found in "$group"/worker-*; do
        [ ! -d "$found" ] || [ "$found" = "$1" ] || [ -z "$(cat "$found/cgroup.procs")" ] || return 0
    done
    return 1
}
processes() { sed -n 's/^NSpid:\s*//p' "/proc/$pid/status" | xargs; } # the host's number, then the sandbox's
in_its_sandbox() { [ "$(processes | wc -w)" = 2 ] && grep -q '^Seccomp:\s*2' "/proc/$pid/status"; }
workers() { [ "$(ls -d "$group"/worker-* | wc -l)" = "$1" ]; }

until_true is_there none
first=$found
pid=$(head -1 "$first/cgroup.procs")
until_true in_its_sandbox
echo "limits: $(cat "$first/memory.max" "$first/pids.max" "$first/cpu.weight" | xargs)"
echo "process: $(processes)"
own=
for kind in cgroup ipc mnt net pid user; do
    [ "$(readlink "/proc/$pid/ns/$kind")" = "$(readlink "/proc/1/ns/$kind")" ] && own="$own $kind:no" || own="$own $kind:yes"
done
echo "namespaces of its own:$own"

# Whatever is in a worker's group: a program that takes threads, then one that takes memory.
python3 - "$first" <<'END'
import sys, threading
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
made, end = 1, threading.Event()
try:
    while made < 2000:
        threading.Thread(target=end.wait, daemon=True).start()
        made += 1
except RuntimeError:
    pass
there = int(open(sys.argv[1] + "/pids.current").read())
print(f"threads: {there} at most")
END
taken=0
python3 - "$first" <<'END' || taken=$?
import sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
held = [bytearray(8 << 20) for _ in range(64)]
END
echo "a hog: $taken"

until_true is_there "$first" # the group ended whole; the GPU has a new worker
second=$found
kill -9 "$(head -1 "$second/cgroup.procs")"
until_true is_there "$second" # and another one
until_true workers 1          # groups that are empty go
echo "afterwards: $(systemctl is-active tnr-gpu-server), $(ls -d "$group"/worker-* | wc -l) worker"
journalctl -u tnr-gpu-server -q --no-pager
systemctl disable --now --quiet tnr-gpu-server
rm /usr/bin/tnr-gpu-server /etc/systemd/system/tnr-gpu-server.service /usr/lib/sysusers.d/tnr-gpu-server.conf /etc/tnr-gpu-server.conf
rm -r /usr/lib/tnr /var/lib/tnr-gpu-server
systemctl daemon-reload
