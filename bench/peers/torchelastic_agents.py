"""Measures torchelastic's dynamic rendezvous (c10d), which torchrun uses, with one thread per node in this process.

    bench/peers/torchelastic_agents.py [--nodes 16,64,128] [--limit 120]

Each thread simulates torchrun's agent until its workers start: a client of the store and `next_rendezvous()`. The table contains the seconds from
the first call to the last return, and the processor time and memory of this process, which runs everything.
"""

import argparse
import datetime
import logging
import os
import resource
import threading
import time

os.environ.update(OMP_NUM_THREADS="1", TORCH_CPP_LOG_LEVEL="ERROR")
from torch.distributed import TCPStore  # noqa: E402
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend  # noqa: E402
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, RendezvousTimeout  # noqa: E402


def meet(count, limit):
    """Seconds, or the reason of a failure."""
    patience = datetime.timedelta(seconds=limit)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=patience)
    ready, ends, problems, handlers = threading.Barrier(count), [], [], []

    def node():
        try:
            client = TCPStore("127.0.0.1", store.port, is_master=False, timeout=patience)
            handler = DynamicRendezvousHandler.from_backend(
                "bench", client, C10dRendezvousBackend(client, "bench"), count, count, local_addr="127.0.0.1",
                timeout=RendezvousTimeout(join=patience))
            handlers.append(handler)
            ready.wait()
            begins.append(time.monotonic())
            handler.next_rendezvous()
            ends.append(time.monotonic())
        except Exception as error:  # errors of each thread
            problems.append(f"{type(error).__name__}: {str(error)[:80]}")
            ready.abort()

    begins = []
    threads = [threading.Thread(target=node, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit + 10
    for thread in threads:
        thread.join(max(0, end - time.monotonic()))
    for handler in handlers:
        handler._stop_heartbeats()
    if len(ends) == count:
        return f"{max(ends) - min(begins):.2f} s"
    return f"{len(ends)} of {count} met within {limit} s ({problems[0] if problems else 'no answer'})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="16,64,128")
    parser.add_argument("--limit", type=int, default=120, help="time limit of the rendezvous in seconds")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
    print("| nodes | rendezvous complete | processor time | memory |\n|---|---|---|---|")
    for count in map(int, options.nodes.split(",")):
        before = time.process_time()
        told = meet(count, options.limit)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        print(f"| {count:,} | {told} | {time.process_time() - before:.1f} s | {memory:.0f} MB |", flush=True)
    os._exit(0)  # threads of nodes that failed to meet still wait


if __name__ == "__main__":
    main()
