"""Zstandard from wherever this Python has it: the standard library from 3.14, its backport before."""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CompressionParameter = zstd.CompressionParameter
DecompressionParameter = zstd.DecompressionParameter
ZstdCompressor = zstd.ZstdCompressor
ZstdDecompressor = zstd.ZstdDecompressor
ZstdError = zstd.ZstdError
compress = zstd.compress
decompress = zstd.decompress
get_frame_info = zstd.get_frame_info
open_file = zstd.open
# For files made with `zstd --long=27`.
WINDOW_LOG_MAX: dict[int, int] = {DecompressionParameter.window_log_max: 27}
