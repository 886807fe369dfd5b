"""Clients of a store and of a Redis in turn: `store_clients.py client|smartredis OURS REDIS ROUNDS` prints medians as JSON.

A round measures every action of both sides once, so that what else the machine does falls on all of them.
"""

import json
import statistics
import sys
import time


def timed(act, count):
    """The middle of the times that an action takes, in seconds, after one time that is not measured."""
    act()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure(actions, rounds):
    """`actions` are (name, unit in seconds, how often, function)."""
    seen = {}
    for _ in range(rounds):
        for name, unit, count, act in actions:
            seen.setdefault(name, []).append(timed(act, count) / unit)
    return {name: statistics.median(times) for name, times in seen.items()}


def client(ours, port, rounds):
    import numpy as np
    import redis
    from phalanx.store import Store

    store, peer = Store(ours), redis.Redis(port=port)
    result = {}
    for name, length, count in (("16mb", 16_000_000, 20), ("193mb", 193_000_000, 4)):
        array, room = np.arange(length // 4, dtype="float32"), np.zeros(length // 4, dtype="float32")

        def redis_get():
            np.copyto(room, np.frombuffer(peer.get("x"), dtype="float32"))

        store.put("x", array)
        peer.set("x", array.data.cast("B"))
        actions = [
            (f"copy_{name}_ms", 1e-3, count, lambda: np.copyto(room, array)),
            (f"put_{name}_ms", 1e-3, count, lambda: store.put("x", array)),
            (f"redis_put_{name}_ms", 1e-3, count, lambda: peer.set("x", array.data.cast("B"))),
            (f"get_{name}_ms", 1e-3, count, lambda: store.get("x", out=room)),
            (f"redis_get_{name}_ms", 1e-3, count, redis_get),
            (f"view_{name}_us", 1e-6, 2000, lambda: store.get("x")),
        ]
        result.update(measure(actions, rounds))
        assert (store.get("x") == array).all()
        store.delete("x")
        peer.delete("x")
    small = np.arange(256, dtype="float32")
    store.put("x", small)
    peer.set("x", small.tobytes())
    actions = [
        ("put_1kb_us", 1e-6, 2000, lambda: store.put("x", small)),
        ("redis_put_1kb_us", 1e-6, 2000, lambda: peer.set("x", small.tobytes())),
        ("get_1kb_us", 1e-6, 2000, lambda: store.get("x")),
        ("redis_get_1kb_us", 1e-6, 2000, lambda: np.frombuffer(peer.get("x"), dtype="float32")),
    ]
    result.update(measure(actions, rounds))
    return result


def smartredis(ours, port, rounds):
    """What a Redis without modules knows: tensors need RedisAI."""
    from smartredis import Client, Dataset

    def dataset():
        made = Dataset("meta")
        for n in range(8):
            made.add_meta_scalar(f"scalar{n}", float(n))
        return made

    actions = []
    sides = (("", ours), ("redis_", f"127.0.0.1:{port}"))
    for prefix, address in sides:
        peer = Client(address=address, cluster=False)
        peer.flush_db([address])
        made = dataset()
        peer.put_dataset(made)
        peer.append_to_list("list", made)
        actions += [
            (f"{prefix}put_dataset_us", 1e-6, 1000, lambda peer=peer, made=made: peer.put_dataset(made)),
            (f"{prefix}get_dataset_us", 1e-6, 1000, lambda peer=peer: peer.get_dataset("meta")),
            (f"{prefix}append_us", 1e-6, 1000, lambda peer=peer, made=made: peer.append_to_list("list", made)),
            (f"{prefix}length_us", 1e-6, 1000, lambda peer=peer: peer.get_list_length("list")),
            (f"{prefix}exists_us", 1e-6, 1000, lambda peer=peer: peer.key_exists("none")),
        ]
    # The same action of both sides one after the other.
    half = len(actions) // 2
    actions = [action for pair in zip(actions[:half], actions[half:]) for action in pair]
    return measure(actions, rounds)


if __name__ == "__main__":
    part, ours, redis_address, rounds = sys.argv[1:]
    run = {"client": client, "smartredis": smartredis}[part]
    print(json.dumps(run(ours, int(redis_address.rsplit(":", 1)[1]), int(rounds))))
