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

# Prints the folder of the waiting worker's group: another than $1.
worker() {
    for _ in $(seq 200); do
        for found in "$group"/worker-*; do
            [ -d "$found" ] && [ "$found" != "$1" ] && [ -n "$(cat "$found/cgroup.procs")" ] && echo "$found" && return
        done
        sleep 0.1
    done
    echo "no worker: $(journalctl -u tnr-gpu-server -q --no-pager)" >&2
    return 1
}

first=$(worker none)
sleep 1 # it has entered its sandbox when it waits
pid=$(head -1 "$first/cgroup.procs")
echo "limits: $(cat "$first/memory.max" "$first/pids.max" "$first/cpu.weight" | xargs)"
echo "process: $(sed -n 's/^NSpid:\s*//p' "/proc/$pid/status" | xargs)"
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

second=$(worker "$first") # the group ended whole; the GPU has a new worker
kill -9 "$(head -1 "$second/cgroup.procs")"
worker "$second" >/dev/null # and another one; groups that are empty are gone by then
echo "afterwards: $(systemctl is-active tnr-gpu-server), $(ls -d "$group"/worker-* | wc -l) worker"
journalctl -u tnr-gpu-server -q --no-pager
systemctl disable --now --quiet tnr-gpu-server
rm /usr/bin/tnr-gpu-server /etc/systemd/system/tnr-gpu-server.service /usr/lib/sysusers.d/tnr-gpu-server.conf /etc/tnr-gpu-server.conf
rm -r /usr/lib/tnr /var/lib/tnr-gpu-server
systemctl daemon-reload
