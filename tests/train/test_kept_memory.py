"""Memory that a step frees is kept: seen in the page faults of a process of its own, since it lasts as long as that."""

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import torch
from elfnet.train.machine import tune_malloc

kept = tune_malloc()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(2**21)
before = faults()
for _ in range(200):
    torch.ones(2**21)
print(kept, faults() - before)
"""


def kept_and_faults(**environment: str) -> tuple[str, int]:
    """Of a process that allocates 8 MiB two hundred times."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True, env={**clean, **environment}
    )
    kept, faults = done.stdout.split()
    return kept, int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_the_same_memory_is_used_again_unless_the_user_has_set_it() -> None:
    pages = 2**23 // os.sysconf("SC_PAGE_SIZE")
    kept, few = kept_and_faults()
    left, many = kept_and_faults(MALLOC_MMAP_THRESHOLD_="1000000")
    assert (kept, left) == ("True", "False")
    assert many > 190 * pages  # every time anew
    assert few < 40 * pages  # the heap may grow a few times more
