"""Replies as no cloud should give them: cut off, of other types, with other members, nested without end, with numbers and words
that nothing can be made of. The same for the same `random`."""
import copy
import json
import re

DEEP = "[" * 5000
JUNK = [None, True, False, 0, -1, 7, 1e99, -0.5, 2**31, 2**63, 2**64, -2**63, "", " ", "word", "nan", "inf", "-1", "1e999", "9" * 400,
        "\x1b[2J\x1b]0;title\x07", "\u0000\n\r\t", "../../etc/passwd", "a b", "\u202eeman", "\ud83e\udd84" * 50, "x" * 70_000,
        "2026-99-99T99:99:99Z", [], {}, [[]], [None], {"": {}}, {"id": None}, [{"name": 3}]]


def places(node, path=()):
    yield path
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from places(child, path + (key,))


def bend_one(node, random):
    """One place of it is another thing, or is gone, or is there twice."""
    path = random.choice(list(places(node)))
    if not path:
        return copy.deepcopy(random.choice(JUNK))
    *way, last = path
    here = node
    for key in way:
        here = here[key]
    what = random.random()
    if what < 0.2:
        del here[last]
    elif what < 0.25 and isinstance(here, list):
        here.insert(last, here[last])
    else:
        here[last] = copy.deepcopy(random.choice(JUNK))
    return node


def bent_json(text, random):
    node = json.loads(text)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        node = bend_one(node, random)
    return json.dumps(node)


def bent_xml(text, random):
    tags = [match for match in re.finditer(r"<(\w+)>[^<]*</\1>", text)]
    if not tags:
        return text
    tag = random.choice(tags)
    what = random.choice(("", f"<{tag[1]}/>", "word", "-1", "9" * 400, "1e999", "x" * 70_000, "&#27;[2J", tag[0] * 3))
    return text[:tag.start()] + (what if what.startswith("<") or not what else f"<{tag[1]}>{what}</{tag[1]}>") + text[tag.end():]


def bent(data, random):
    """`data` as it came, most of the time."""
    what = random.random()
    if what < 0.6 or not data:
        return data
    if what < 0.65:
        return data[:random.randrange(len(data))]
    if what < 0.68:
        at = random.randrange(len(data))
        return data[:at] + bytes([random.randrange(256)]) + data[at + 1:]
    if what < 0.7:
        return random.choice((b"<html><title>Gateway</title>", DEEP.encode(), b'{"a":' * 5000, b"<a>" * 5000, b"\xff\xfe", b"null"))
    try:
        return bent_json(data.decode(), random).encode()
    except ValueError:
        return bent_xml(data.decode(errors="replace"), random).encode()


def bent_status(status, random):
    return status if random.random() < 0.9 else random.choice((200, 202, 204, 301, 400, 401, 403, 404, 409, 418, 422, 429, 500, 599))
