"""The same simulation as a program for SmartRedis, which knows nothing of streams: it appends datasets to a list.

Such a stream has no producers that close: `phalanx store seal heat` ends it.
"""

from __future__ import annotations

import sys

from simulate import STREAM, simulate
from smartredis import Client, Dataset


def main() -> None:
    name, uploads = sys.argv[1], int(sys.argv[2])
    client = Client(cluster=False)  # SSDB=127.0.0.1:6780
    for number in range(uploads):
        begins, ends = simulate(name, number, 32)
        dataset = Dataset(f"{name}_{number}")
        dataset.add_tensor("begins", begins)
        dataset.add_tensor("ends", ends)
        client.put_dataset(dataset)
        client.append_to_list(STREAM, dataset)


if __name__ == "__main__":
    main()
