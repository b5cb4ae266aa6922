"""LMCache's raw block I/O (PyPI: lmcache-rust-raw-block-io), one lap in a process of its own.

The module is the layer beneath LMCache's raw_block tier: a file or device, offsets and memory. A put
writes a whole slot in one operation, a get reads one; there is no sum, no header and no sync. With
io_uring, slots go in batches of 64, the most that LMCache sends, two of them under way, over memory
that is registered: the module hands the kernel all of a batch whatever depth it is told. With posix,
four threads write and read.

Prints what the lap took as one line of JSON. Called by the bench program.
"""

import argparse
import ctypes
import json
import mmap
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from lmcache_rust_raw_block_io import RawBlockDevice

BATCH_COUNT = 64
THREAD_COUNT = 4


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--path", required=True)
    parser.add_argument("--engine", choices=["posix", "io_uring"], required=True)
    parser.add_argument("--kind", choices=["first", "later"], required=True)
    for name in ("--slot-bytes", "--slot-count", "--place-count", "--depth"):
        parser.add_argument(name, type=int, required=True)
    return parser.parse_args()


class Places:
    """Slots in memory on 2 MiB pages, used in turn."""

    def __init__(self, slot_bytes, count, fill):
        self.slot_bytes = slot_bytes
        self.count = count
        self.mapping = mmap.mmap(-1, slot_bytes * count, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.mapping.madvise(mmap.MADV_HUGEPAGE)
        self.view = memoryview(self.mapping)
        for place in range(count):
            self[place][:] = fill(slot_bytes)

    def __getitem__(self, place):
        start = place % self.count * self.slot_bytes
        return self.view[start : start + self.slot_bytes]

    def region(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.mapping)), len(self.view)


class Device:
    """The file, and how slots are moved to and from it."""

    def __init__(self, options, sources, targets):
        self.slot_bytes = options.slot_bytes
        self.is_ring = options.engine == "io_uring"
        # Batches under way never share a place.
        self.batch_count = min(BATCH_COUNT, options.place_count // 2)
        self.file = RawBlockDevice(
            options.path,
            True,
            use_odirect=True,
            alignment=4096,
            io_engine=options.engine,
        )
        if self.is_ring:
            addresses, lengths = zip(sources.region(), targets.region())
            self.file.register_fixed_buffers(list(addresses), list(lengths))
            registered, _ = self.file.fixed_buffer_status()
            if not registered:
                sys.exit("the kernel did not register the memory")
        else:
            self.threads = ThreadPoolExecutor(THREAD_COUNT)

    def batches(self, start, order, places):
        waiting = []
        for first in range(0, len(order), self.batch_count):
            slots = order[first : first + self.batch_count]
            offsets = [slot * self.slot_bytes for slot in slots]
            memory = [places[first + index] for index in range(len(slots))]
            waiting.append(start(offsets, memory, [self.slot_bytes] * len(slots)))
            if len(waiting) == 2:
                self.end(waiting.pop(0))
        for batch in waiting:
            self.end(batch)

    def end(self, batch):
        _, errors = self.file.wait_iouring(batch)
        if errors:
            sys.exit(f"an operation failed: {errors[0]}")

    def spread(self, move, order, places):
        def run(thread):
            for index in range(thread, len(order), THREAD_COUNT):
                move(order[index] * self.slot_bytes, places[index])

        for _ in self.threads.map(run, range(THREAD_COUNT)):
            pass

    def put(self, order, places):
        if self.is_ring:
            self.batches(self.file.batched_write, order, places)
        else:
            self.spread(self.file.pwrite_from_buffer, order, places)

    def get(self, order, places):
        if self.is_ring:
            self.batches(self.file.batched_read, order, places)
        else:
            length = self.slot_bytes
            move = lambda offset, memory: self.file.pread_into(offset, memory, length, length)
            self.spread(move, order, places)


def cost(work):
    start, start_cpu = time.perf_counter(), time.process_time()
    work()
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - start_cpu,
    }


def main():
    options = arguments()
    order = list(range(options.slot_count))
    if options.kind == "later":
        random.Random(7).shuffle(order)
    sources = Places(options.slot_bytes, options.place_count, os.urandom)
    targets = Places(options.slot_bytes, options.place_count, bytes)
    device = Device(options, sources, targets)
    put = cost(lambda: device.put(order, sources))
    # What the file system still does for the writes must not fall on the reads.
    with open(options.path, "rb") as file:
        os.fdatasync(file.fileno())
    get = cost(lambda: device.get(order, targets))
    # What is still in memory must be what was written from the place of the same number.
    for index in range(max(0, len(order) - options.place_count), len(order)):
        if targets[index] != sources[index]:
            sys.exit(f"slot {order[index]} came back wrong")
    print(json.dumps({"put": put, "get": get}))


main()
