"""Work on many models, a few at a time."""

import gc
import multiprocessing
from collections.abc import Callable, Iterable, Iterator


def results(work: Callable, jobs: Iterable, processes: int, tasks: int) -> Iterator:
    """Return the results of `work` for each job, in any order.

    With one process everything is done in this one, which has imported torch already, and whose collector of
    garbage passes over that: it would take a third of an export's time. Of several, each ends after so many tasks,
    and with it what torch keeps of them.
    """
    if processes == 1:
        for job in jobs:
            gc.collect()
            gc.freeze()
            yield work(job)
        return
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=tasks) as pool:
        yield from pool.imap_unordered(work, jobs)
