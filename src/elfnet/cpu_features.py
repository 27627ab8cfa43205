"""Facts about the processor that decide which kernels may run.

Some virtual machines announce AMX (matrix units of Intel processors) but do not pass on the CPUID leaf that describes
its tiles. oneDNN, which torch and OpenVINO use, then configures no tiles, and the first bfloat16 product kills the
process with an illegal instruction.
"""

import os

CPUINFO = "/proc/cpuinfo"
TILE_LEAF = 0x1D
"""The CPUID leaf that describes the tiles of AMX."""


def amx_is_unusable() -> bool:
    """Whether the processor announces AMX without describing its tiles. Only Linux tells; elsewhere False."""
    # Not with pathlib, which would add a tenth to the time of `import elfnet`.
    try:
        file = os.open(CPUINFO, os.O_RDONLY)
        try:
            first_processor = os.read(file, 8192).decode(errors="replace").partition("\n\n")[0]
        finally:
            os.close(file)
    except OSError:
        return False
    fields = {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first_processor.splitlines())
    }
    level = fields.get("cpuid level", "")
    return "amx_tile" in fields.get("flags", "").split() and level.isdigit() and int(level) < TILE_LEAF


def hide_unusable_amx() -> None:
    """Keep oneDNN from AMX where it cannot work. Effective before the first computation; a user's setting stays."""
    if amx_is_unusable():
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
