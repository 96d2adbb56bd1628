"""Functions that are linear, or affine, in each of some arguments."""

from __future__ import annotations

import numpy as np

from tfopt_ref.autodiff.vjps.derived import affine

__all__: list[str] = []

for transform in (
    np.fft.fft, np.fft.ifft, np.fft.fft2, np.fft.ifft2, np.fft.fftn, np.fft.ifftn,
    np.fft.rfft, np.fft.irfft, np.fft.rfft2, np.fft.irfft2, np.fft.rfftn, np.fft.irfftn,
    np.fft.hfft, np.fft.ihfft,
):  # fmt: skip
    affine(transform, "a")
for shift in (np.fft.fftshift, np.fft.ifftshift):
    affine(shift, "x")

affine(np.convolve, "a v")
affine(np.correlate, "a v")
affine(np.diff, "a prepend append")
affine(np.ediff1d, "ary to_end to_begin")
affine(np.gradient, "f")
affine(np.trapezoid, "y x dx")
affine(np.linspace, "start stop")
# before NumPy 2.4 it did not say which arguments it has
affine(np.bincount, "weights", like=lambda x, /, weights=None, minlength=0: None)
affine(np.cumulative_sum, "x")
