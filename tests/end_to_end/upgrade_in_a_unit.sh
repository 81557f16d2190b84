# On a machine, as root, in a folder with old.deb, new.deb and program.py: installs the server, has a program hold a GPU of it,
# and upgrades the package under systemd. Prints "what: how" lines, then the server's log.
set -eu
cd "$(dirname "$0")"
export DEBIAN_FRONTEND=noninteractive
state=/var/lib/tnr-gpu-server group=/sys/fs/cgroup/system.slice/tnr-gpu-server.service
as_server() { setpriv --reuid tnr-gpu-server --regid tnr-gpu-server --clear-groups "$@"; }
told() { as_server tnr-gpu-server status --state $state -o json | python3 -c "import json, sys; now = json.load(sys.stdin); print($1)"; }
until_true() {
    for _ in $(seq 300); do
        ! "$@" || return 0
        sleep 0.2
    done
    echo "not so: $*; $(journalctl -u tnr-gpu-server -q --no-pager -n 50)" >&2
    return 1
}
# The program is a worker's client: the group that has it is that of the worker that serves.
worker() { grep -lx "$1" "$group"/worker-*/cgroup.procs 2>/dev/null | xargs -r dirname; }

apt-get -q -y install ./old.deb >install.log 2>&1 || { cat install.log >&2; exit 1; }
printf '%s\n' 'plain = true' 'emulate = "h100:2"' 'emulated-memory = 64' 'host-memory-mib = 64' 'stop-grace = 60' >/etc/tnr-gpu-server.conf
systemctl enable --quiet tnr-gpu-server
systemctl restart tnr-gpu-server
until_true test -S $state/watch.sock
free() { [ "$(told '[gpu["state"] for gpu in now["gpus"]]')" = "['free', 'free']" ]; }
until_true free
pid=$(systemctl show -P MainPID tnr-gpu-server)

echo '{"pool": "tcp://127.0.0.1:14900", "gpu": "h100"}' >here.json # not the pool that the machine is of
TNR_CONFIG=$PWD/here.json LD_LIBRARY_PATH=/usr/local/lib/tnr python3 program.py >program.out 2>&1 &
program=$!
until_true grep -q ready program.out
serves=$(told '[s["pid"] for c in now["claims"] for s in c["sessions"]]')
echo "holds: $serves is [$program]"
# Of the workers, one serves; the other waits.
before=$(for each in "$group"/worker-*; do echo "$(basename "$each") $(cat "$each/cgroup.procs" | xargs) $(cat "$each/memory.max" "$each/pids.max" | xargs)"; done)
echo "version before: $(told 'now["nodes"][0]["version"]')"

apt-get -q -y install --allow-downgrades ./new.deb >install.log 2>&1 || { cat install.log >&2; exit 1; }
sed 's/^/apt: /' install.log
echo "version after: $(told 'now["nodes"][0]["version"]')"
echo "reloads: $(told 'now["nodes"][0]["reloads"]["done"]') done, $(told 'now["nodes"][0]["reloads"]["failed"]') failed"
[ "$(systemctl show -P MainPID tnr-gpu-server)" = "$pid" ] && echo "main process: the same" || echo "main process: another"
echo "running: $(sha256sum </proc/"$pid"/exe | cut -c1-16), installed: $(sha256sum </usr/bin/tnr-gpu-server | cut -c1-16)"
kept=$(for each in "$group"/worker-*; do
    line="$(basename "$each") $(cat "$each/cgroup.procs" | xargs) $(cat "$each/memory.max" "$each/pids.max" | xargs)"
    if echo "$before" | grep -qxF "$line"; then echo "$line"; fi
done)
echo "groups kept with their limits: $(echo "$kept" | grep -c .)"
free_again() { [ "$(told 'sorted(gpu["state"] for gpu in now["gpus"])')" = "['claimed', 'free']" ]; }
until_true free_again
echo "groups with a process: $(for each in "$group"/worker-*; do cat "$each/cgroup.procs" | head -1; done | grep -c .)"
limits=$(cat "$group"/worker-*/memory.max | sort -u | xargs)
echo "limits: $limits"

# By hand, with a changed configuration, and with one that is wrong.
sed -i 's/^stop-grace = .*/stop-grace = 59/' /etc/tnr-gpu-server.conf
systemctl reload tnr-gpu-server && echo "reload: done"
echo 'no-such-setting = 1' >>/etc/tnr-gpu-server.conf
systemctl reload tnr-gpu-server 2>reload.log && echo "reload of a mistake: done" || echo "reload of a mistake: refused"
echo "after it: $(systemctl is-active tnr-gpu-server), $(told 'now["nodes"][0]["reloads"]["done"]') done, $(told 'now["nodes"][0]["reloads"]["failed"]') failed"
sed -i '/no-such-setting/d' /etc/tnr-gpu-server.conf
# The worker's limits hold as before: a hog in its group takes the whole group along.
kill -TERM $program
wait $program && ended=0 || ended=$?
echo "program: $ended, $(tail -1 program.out)"
backup=$(mktemp -u /tmp/backup-XXXXXX)
tnr-gpu-server backup "$backup" --state $state >/dev/null && echo "backup: $(stat -c %a "$backup")"
begun=$(date +%s)
systemctl stop tnr-gpu-server
echo "stopped: $(systemctl is-active tnr-gpu-server), within $(($(date +%s) - begun)) s"
as_server tnr-gpu-server check --config /etc/tnr-gpu-server.conf --state $state >check.log 2>&1 && echo "check: good" || { cat check.log; echo "check: bad"; }
python3 - <<END
import sqlite3
lines = sqlite3.connect("$state/pool.db").execute("SELECT ended_ms IS NOT NULL, reason FROM claims").fetchall()
print("ledger:", len(lines), lines)
END
journalctl -u tnr-gpu-server -q --no-pager
apt-get -q -y purge tnr-gpu-server >purge.log 2>&1 || { cat purge.log >&2; exit 1; }
echo "purged: $(systemctl is-enabled tnr-gpu-server 2>/dev/null || true)$(ls -d $state 2>/dev/null || true)"
