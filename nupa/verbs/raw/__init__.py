# SPDX-License-Identifier: BSD-3-Clause
"""Raw packets: attributes can be built, and the device refuses the objects made from them."""
