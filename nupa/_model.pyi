# SPDX-License-Identifier: BSD-3-Clause
# The compiled engines of nupa.model (csrc/model): cffi's two objects, whose contents C declares.
from typing import Any

ffi: Any
lib: Any
