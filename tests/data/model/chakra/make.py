# SPDX-License-Identifier: BSD-3-Clause
"""Runs MLCommons' tools on this folder: they write its traces, and read one of ours.

`pip install --no-deps mlc-chakra==1.0.0 protobuf==6.31.1 networkx`, and `make.py WORKLOAD`: the
text of ASTRA-sim that README.md names.  The trace of ours, `ours.0.et`, is there before.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
GENERATED = "one_metadata_node_all_types.0"


def main() -> None:
    workload = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:

        def run(tool: str, *args: str) -> None:
            command = [str(Path(sys.executable).with_name(tool)), *args]
            subprocess.run(command, cwd=folder, check=True)

        run("chakra_generator", "--num_npus", "1")
        (HERE / f"{GENERATED}.et").write_bytes((Path(folder) / f"{GENERATED}.et").read_bytes())
        run(
            "chakra_converter",
            "Text",
            f"--input={workload}",
            f"--output={HERE / 'mlp'}",
            "--num-npus=4",
            "--num-passes=1",
        )
        for name in ("mlp.0", GENERATED, "ours.0"):
            run(
                "chakra_jsonizer",
                f"--input_filename={HERE / name}.et",
                f"--output_filename={HERE / name}.json",
            )


if __name__ == "__main__":
    main()
