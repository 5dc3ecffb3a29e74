"""The 64 colours of the NES picture unit as RGB and as grey.

A picture of this package is colour numbers 0-63. The RGB values are the widely published table
that most emulators ship; the real thing is an analogue signal and has none.
"""

from __future__ import annotations

import numpy as np

_HEX = """
7C7C7C 0000FC 0000BC 4428BC 940084 A80020 A81000 881400 503000 007800 006800 005800 004058 000000 000000 000000
BCBCBC 0078F8 0058F8 6844FC D800CC E40058 F83800 E45C10 AC7C00 00B800 00A800 00A844 008888 000000 000000 000000
F8F8F8 3CBCFC 6888FC 9878F8 F878F8 F85898 F87858 FCA044 F8B800 B8F818 58D854 58F898 00E8D8 787878 000000 000000
FCFCFC A4E4FC B8B8F8 D8B8F8 F8B8F8 F8A4C0 F0D0B0 FCE0A8 F8D878 D8F878 B8F8B8 B8F8D8 00FCFC F8D8F8 000000 000000
"""

RGB = np.array([list(bytes.fromhex(word)) for word in _HEX.split()], np.uint8)
"""`[64, 3]`: colour number -> red, green, blue."""

GREY = ((RGB.astype(np.int64) @ np.array([299, 587, 114]) + 500) // 1000).astype(np.uint8)
"""`[64]`: colour number -> luma (ITU-R 601), rounded."""

PLAIN = np.arange(64, dtype=np.uint8)
"""`[64]`: colour number -> itself."""
