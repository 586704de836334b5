# SPDX-License-Identifier: BSD-3-Clause
# Builds for 64-bit ARM on another machine, with Debian's cross compiler, and runs the tests in
# QEMU's user mode (make check-arm).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
