# SPDX-License-Identifier: BSD-3-Clause
"""Captures what crosses a fabric into files and lines.  Knows captures; never how C records them.

* `live`: a fabric as a source of packets, in batches as a file has them
* `view`: the packets of a batch as columns; `fields`: their names; `filter`: expressions over them
* `sinks`: files (`FileSink`) and lines (`LineSink`; `lines` formats them)
* `loop`: moves packets from a source through a filter to a sink
* `beside`: a process that captures while a program runs
"""
