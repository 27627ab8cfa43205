"""Tables are read, replayed and calibrated where no torch is installed."""

import subprocess
import sys

MODULES = (
    "elfnet.exits.policy",
    "elfnet.exits.threshold",
    "elfnet.evaluate.metrics",
    "elfnet.evaluate.bootstrap",
    "elfnet.evaluate.metrics",
    "elfnet.evaluate.trade_off",
    "elfnet.calibrate.line_search",
)


def test_importing_loads_no_torch() -> None:
    code = f"import sys, {', '.join(MODULES)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
