"""On a CPU, memory that a step frees is kept for the next one.

glibc gives large blocks back to the system at once. A training step allocates the same hundreds of megabytes again and
again, so every step pays for mapping and clearing them anew: about a sixth of the time of a ResNet-32 step (batch 128,
one thread).
"""

import ctypes
import os
import platform

# From glibc's malloc.h. Blocks up to 32 MiB (the most that mallopt takes) come from the heap; the heap is not shrunk.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
SETTINGS = {MMAP_THRESHOLD: 32 * 2**20, TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 64 * 2**20}


def keep_freed_memory() -> bool:
    """For the whole process; gives whether it was done: only with glibc, and not where the user has set it."""
    if platform.libc_ver()[0] != "glibc" or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    if "malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    libc = ctypes.CDLL(None)
    return all(libc.mallopt(setting, value) == 1 for setting, value in SETTINGS.items())
