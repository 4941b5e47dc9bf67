"""Writes the golden records beside this file: numpy and ml_dtypes only, nothing of kvstore.

    python tests/golden/codec/make_golden.py

Rows are the synthetic ones of the format description: element d of token k in stream s has index
i = k*dim + d + s*2^20, h = (i*2654435761 + 0x9E3779B9) mod 2^32, and the value
(h/2^32 - 0.5) * 8 * 2^(((d >> 4) mod 7) - 3), rounded to bf16.
"""

from pathlib import Path

import ml_dtypes
import numpy as np

F32 = np.float32
E4M3, E2M1 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn


def row(token, dim, stream=0):
    index = np.arange(dim, dtype=np.uint64) + np.uint64(token * dim + (stream << 20))
    hashed = (index * np.uint64(2654435761) + np.uint64(0x9E3779B9)) & np.uint64(0xFFFFFFFF)
    octave = ((np.arange(dim) >> 4) % 7) - 3.0
    value = (hashed.astype(np.float64) / 2**32 - 0.5) * 8.0 * np.exp2(octave)
    return value.astype(F32).astype(ml_dtypes.bfloat16).astype(F32)


def bytes_of(array):
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1)


def fp8(x):
    return bytes_of(np.clip(x, -448, 448).astype(F32).astype(E4M3))


def fp4(x):
    codes = bytes_of(np.clip(x, -6, 6).astype(F32).astype(E2M1)) & 0xF
    return codes[0::2] | (codes[1::2] << 4)


def bf16(x):
    return bytes_of(x.astype(ml_dtypes.bfloat16))


def amax(blocks):
    return np.abs(blocks).max(1).astype(F32)


def ceil_log2(x):
    fraction, exponent = np.frexp(x.astype(np.float64))
    return np.where(fraction == 0.5, exponent - 1, exponent)


def power(x, block, largest, floor):
    """Codes' quotients and exponents of scales 2^ceil(log2(max(amax, floor) / largest))."""
    blocks = x.reshape(-1, block)
    exponent = ceil_log2(np.maximum(amax(blocks), F32(floor)) * F32(1 / largest))
    return (blocks * np.exp2(-exponent.astype(np.float64))[:, None]).reshape(-1), exponent


def e8m0(exponent):
    return (exponent + 127).astype(np.uint8)


def nv(x, reciprocal):
    blocks = x.reshape(-1, 16)
    scale = np.clip(amax(blocks) * F32(1 / 6), F32(2**-9), F32(448)).astype(E4M3)
    value = scale.astype(F32)[:, None]
    quotient = blocks * (F32(1) / value) if reciprocal else blocks / value
    return fp4(quotient.reshape(-1)), bytes_of(scale)


def record_656(x, power_of_two):
    blocks = x[:512].reshape(4, 128)
    scale = np.maximum(amax(blocks) / F32(448), F32(2.0**-126))
    if power_of_two:
        scale = np.exp2(ceil_log2(np.maximum(scale, F32(1e-4)))).astype(F32)
    codes = fp8((blocks / scale[:, None]).reshape(-1))
    return [codes, bytes_of(scale.astype("<f4")), bf16(x[512:])]


def record_352(x):
    codes, scales = nv(x[:512], reciprocal=True)
    strided = np.zeros(32, np.uint8)
    for s in range(32):
        strided[8 * (s & 3) + (s >> 2)] = scales[s]
    return [codes, fp8(x[512:]), strided]


def record_416(x):
    return [*nv(x[:512], reciprocal=False), bf16(x[512:])]


def page_v4(rows):
    data, tail = [], []
    for x in rows:
        quotient, exponent = power(x[:448], 64, 448, 1e-4)
        data += [fp8(quotient), bf16(x[448:])]
        tail += [e8m0(exponent), np.zeros(1, np.uint8)]
    size = len(rows) * 584
    return [*data, *tail, np.zeros(-size % 576, np.uint8)]


def page_index_fp8(rows):
    coded = [power(x, 128, 448, 1e-4) for x in rows]
    scales = [bytes_of(np.exp2(e.astype(np.float64)).astype("<f4")) for _, e in coded]
    return [fp8(q) for q, _ in coded] + scales


def page_index_fp4(rows):
    coded = [power(x, 32, 6, 6 * 2.0**-126) for x in rows]
    return [fp4(q) for q, _ in coded] + [e8m0(e) for _, e in coded]


def record_528(x):
    quotient, exponent = power(x, 32, 448, 1e-4)
    return [fp8(quotient), e8m0(exponent)]


def main():
    x, y = row(0, 576), row(0, 512)
    records = {
        "fp8_ds_mla.raw": record_656(x, power_of_two=False),
        "fp8_ds_mla": record_656(x, power_of_two=True),
        "nvfp4_ds_mla": record_352(x),
        "nvfp4_mla_416": record_416(x),
        "v4_main": page_v4([row(k, 512) for k in range(2)]),
        "v41_window": record_528(y),
        "v41_main": [*nv(y, reciprocal=False)],
        "index_fp8": page_index_fp8([row(k, 128, 1) for k in range(2)]),
        "index_fp4": page_index_fp4([row(k, 128, 1) for k in range(2)]),
    }
    for name, parts in records.items():
        (Path(__file__).parent / f"{name}.bin").write_bytes(np.concatenate(parts).tobytes())


if __name__ == "__main__":
    main()
