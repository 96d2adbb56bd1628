/* What the C functions have in common: how they are exported, and a device, or the host for one. */
#pragma once

#ifdef __CUDACC__
#include "device.h"
#else
#include "host.h"
#endif

#define API extern "C" __attribute__((visibility("default")))

enum { OUTSIDE = -1, REPEATED = -2, CAPTURED = -3 }; /* answers that are no errors of CUDA */
