#!/usr/bin/env python3
"""Prints the figures of a pool's nodes, which Grafana has from /metrics (packaging/grafana/tnr-pool.json), and what users had.

    pool_figures.py [--began-anew] URL...    URL: of each node's page, http://127.0.0.1:14905

With --began-anew a node has been started again within the last day. It counts from there, and the day from before.
"""
import json
import sys
import time
import urllib.request

# A node reads its ledger every 15 s and asks the others for theirs as often, who then read it for the next time.
ALL_TOLD_S = 35
DAY_LIMIT_S = 60  # one that was slow is left alone for ten


def ask(url, path):
    with urllib.request.urlopen(url.rstrip("/") + path, timeout=5) as answer:
        return json.load(answer)


def ms(histogram):
    return "-" if histogram["mean_s"] is None else f"{histogram['mean_s'] * 1000:.1f} ms"


def has_all(day, nodes, waited_s, began_anew):
    """Whether the last day is of all that these count; where that cannot be compared, whether they have had time to tell."""
    counted, told = sum(now["totals"]["claim_s"]["count"] for now in nodes), sum(user["claims"] for user in day["users"])
    return not day["silent"] and (told >= counted and waited_s > ALL_TOLD_S if began_anew else told == counted)


def read(urls, began_anew):
    """What each node says of itself, the pool's last day, and whether that has come to have it all."""
    begun = time.monotonic()
    first = [ask(url, "/api/now")["now"] for url in urls]  # up to a second old: of before what ended just now
    while True:
        # /api/now is a node's own, /api/day the whole pool's, whichever node is asked.
        nodes, day = [ask(url, "/api/now") for url in urls], ask(urls[0], "/api/day")
        waited_s = time.monotonic() - begun
        whole = has_all(day, nodes, waited_s, began_anew) and all(now["now"] != old for now, old in zip(nodes, first))
        if whole or waited_s > DAY_LIMIT_S:
            return nodes, day, whole
        time.sleep(0.2)


def node_lines(now):
    totals, gpus = now["totals"], now["gpus"]
    return (("GPUs free", f"{sum(gpu['state'] in ('free', 'kept') for gpu in gpus)} of {len(gpus)}"),
            ("claims, programs", f"{totals['claims']}, {totals['sessions']}"), ("waiting", len(now["queue"])),
            ("time to a GPU", ms(totals["claim_s"])), ("GPU time held", f"{totals['held_s']:.2f} s"),
            ("wipes", f"{totals['wipes']}, {ms(totals['wipe_s'])} each, {totals['wipes_failed']} failed"),
            ("refusals", sum(totals["refusals"].values())))


def day_lines(day, whole):
    for user in day["users"]:
        yield f"user {user['user']}", f"{user['claims']} claims, {user['gpu_s']:.2f} s of a GPU in the last day"
    if not whole:
        yield "not all yet", "missing: " + (", ".join(day["silent"]) or "what was used in the last half minute")


def show(title, lines):
    print(f"\n{title}")
    for name, value in lines:
        print(f"  {name:<18}{value}")


def main(urls, began_anew):
    nodes, day, whole = read(urls, began_anew)
    for url, now in zip(urls, nodes):
        show(f"{now['nodes'][0]['name']}, {url}", node_lines(now))
    show("the pool", day_lines(day, whole))


if __name__ == "__main__":
    began_anew = sys.argv[1:2] == ["--began-anew"]
    urls = sys.argv[1 + began_anew:]
    if not urls:
        sys.exit(__doc__)
    main(urls, began_anew)
