"""FarmHash's fingerprint of 128 bits, by which TensorFlow's SDCA knows its examples.

All arithmetic is modulo 2**64. The function is CityHash's of 128 bits, of 2011, which FarmHash has
kept (Pike and Alakuijala, https://github.com/google/farmhash).
"""

from __future__ import annotations

__all__ = ["fingerprint"]

K0 = 0xC3A5C85C97CB3127
K1 = 0xB492B66FBE98F273
K2 = 0x9AE16A3B2F90404F
KM = 0x9DDFEA08EB382D69
MASK = 2**64 - 1


def fingerprint(s: bytes) -> tuple[int, int]:
    """Return the two halves, signed. Low ones of 0 and 1 are kept free for TensorFlow's table."""
    if len(s) >= 16:
        seeds, s = (load(s, 0, 8), (load(s, 8, 8) + K0) & MASK), s[16:]
    else:
        seeds = K0, K1
    low, high = (hash_medium if len(s) < 128 else hash_long)(s, *seeds)
    if low < 2:
        low = (low - 2) & MASK
    return signed(low), signed(high)


def signed(v: int) -> int:
    return v - 2**64 if v >= 2**63 else v


def load(s: bytes, i: int, n: int) -> int:
    """Return the little-endian number in n bytes."""
    return int.from_bytes(s[i : i + n], "little")


def rotate(v: int, k: int) -> int:
    v &= MASK
    return (v >> k | v << (64 - k)) & MASK


def fold(v: int) -> int:
    v &= MASK
    return v ^ (v >> 47)


def mix(u: int, v: int, m: int = KM) -> int:
    return fold((v ^ fold((u ^ v) * m)) * m) * m & MASK


def hash_short(s: bytes) -> int:
    """Hash at most 16 bytes."""
    n = len(s)
    m = K2 + 2 * n
    if n >= 8:
        p, r = load(s, 0, 8) + K2, load(s, n - 8, 8)
        return mix((rotate(r, 37) * m + p) & MASK, ((rotate(p, 25) + r) * m) & MASK, m)
    if n >= 4:
        return mix(n + 8 * load(s, 0, 4), load(s, n - 4, 4), m)
    if n > 0:
        p, r = s[0] + 256 * s[n // 2], n + 4 * s[n - 1]
        return fold((p * K2 ^ r * K0) & MASK) * K2 & MASK
    return K2


def weak(s: bytes, i: int, a: int, b: int) -> tuple[int, int]:
    """Hash 32 bytes with two seeds."""
    w, x, y, z = (load(s, i + k, 8) for k in (0, 8, 16, 24))
    a += w
    b = rotate(b + a + z, 21)
    start = a
    a += x + y
    return (a + z) & MASK, (b + rotate(a, 44) + start) & MASK


def hash_medium(s: bytes, a: int, b: int) -> tuple[int, int]:
    """Hash less than 128 bytes with two seeds."""
    n = len(s)
    if n <= 16:
        a = fold(a * K1) * K1 & MASK
        c = (b * K1 + hash_short(s)) & MASK
        d = fold(a + (load(s, 0, 8) if n >= 8 else c))
    else:
        c = mix((load(s, n - 8, 8) + K1) & MASK, a)
        d = mix((b + n) & MASK, (c + load(s, n - 16, 8)) & MASK)
        a = (a + d) & MASK
        for i in range(0, n - 16, 16):
            a = (a ^ fold(load(s, i, 8) * K1) * K1) * K1 & MASK
            b ^= a
            c = (c ^ fold(load(s, i + 8, 8) * K1) * K1) * K1 & MASK
            d ^= c
    a = mix(a, c)
    b = mix(d, b)
    return a ^ b, mix(b, a)


def hash_long(s: bytes, x: int, y: int) -> tuple[int, int]:
    """Hash at least 128 bytes with two seeds."""
    n = len(s)
    left = n % 128
    z = n * K1
    v0 = rotate(y ^ K1, 49) * K1 + load(s, 0, 8)
    v1 = rotate(v0, 42) * K1 + load(s, 8, 8)
    w0 = rotate(y + z, 35) * K1 + x
    w1 = rotate(x + load(s, 88, 8), 53) * K1 & MASK
    for i in range(0, n - left, 64):
        x = rotate(x + y + v0 + load(s, i + 8, 8), 37) * K1 & MASK
        y = rotate(y + v1 + load(s, i + 48, 8), 42) * K1
        x ^= w1
        y += v0 + load(s, i + 40, 8)
        z = rotate(z + w0, 33) * K1
        v0, v1 = weak(s, i, v1 * K1, x + w0)
        w0, w1 = weak(s, i + 32, z + w1, y + load(s, i + 16, 8))
        z, x = x, z
    x += rotate(v0 + z, 49) * K0
    y = y * K0 + rotate(w1, 37)
    z = z * K0 + rotate(w0, 27)
    w0 *= 9
    v0 *= K0
    for back in range(32, left + 32, 32):  # from the end, into what has been hashed already
        i = n - back
        y = rotate(x + y, 42) * K0 + v1
        w0 += load(s, i + 16, 8)
        x = x * K0 + w0
        z += w1 + load(s, i, 8)
        w1 += v0
        v0, v1 = weak(s, i, v0 + z, v1)
        v0 *= K0
    x = mix(x & MASK, v0 & MASK)
    y = mix((y + z) & MASK, w0 & MASK)
    return (mix((x + v1) & MASK, w1 & MASK) + y) & MASK, mix((x + w1) & MASK, (y + v1) & MASK)
