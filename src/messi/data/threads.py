"""Threads beside the main one."""

from concurrent.futures import ThreadPoolExecutor

import torch


def single_threads(number: int) -> ThreadPoolExecutor:
    """Return threads in which an operation of torch uses no further ones.

    Once OpenMP has more threads than the machine has cores, it puts all of them to sleep between two operations: one
    thread that drew batches beside the training made that a fifth slower on two cores.
    """
    return ThreadPoolExecutor(number, initializer=torch.set_num_threads, initargs=(1,))
