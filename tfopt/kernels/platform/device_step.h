/* A step of variables on a device, as compiled code passes it to the device's library. */
#pragma once

#include <stdint.h>

enum tfopt_clipping { UNCLIPPED, CLIPPED_EACH, CLIPPED_TOGETHER };

/* How variables are stored, computed in float32, that the kernels of one type do not step. */
struct tfopt_device_storage {
    int storage[5];         /* of a variable, its slots and its gradient: as in layout.pxd */
    int rounds;             /* whether bfloat16 is rounded stochastically, by a key of the next */
    uint64_t seed, step;
    const int64_t *numbers; /* and of each variable's */
    const void *dynamic;    /* on the device: tables of codes */
};

/* Whole variables that one rule steps with the same numbers, or some rows of a variable. */
struct tfopt_device_part {
    int64_t first, n;      /* among all variables of the step */
    void *const *data;     /* each variable's arrays, one variable after the other */
    const double *scalars; /* as of tfopt_cuda_dense */
    int rule, types, constants;
    double decay;     /* cautious, 0 if there is none */
    const struct tfopt_device_storage *stored; /* NULL: as the types say */
    int index_size;   /* in bytes; 0 of whole variables, which need none of what follows */
    int summed, lazy; /* as of tfopt_cuda_rows: the gradients of a row, and other rows */
    const void *indices;
    /* NULL, or which row of the gradient each index stands for; the sums of these by index are the
     * gradient, and the indices have been checked */
    const void *sources;
    int64_t n_indices, n_rows, inner;
};

struct tfopt_device_step {
    int device;
    void *stream;
    int n_others;        /* other streams, whose work precedes the step's, and follows it */
    void *const *others;
    int64_t n; /* variables of all parts */
    const void *const *grad;
    const int64_t *size;  /* of gradients */
    const int64_t *inner; /* elements of a row that has a number of its own */
    const int *grad_type;
    int n_parts;
    const struct tfopt_device_part *parts;
    enum tfopt_clipping clipping;
    double limit;     /* of norms */
    double scale;     /* of gradients that are clipped by them */
    double bounds[4]; /* of elements, by the gradient's type; INFINITY if there are none */
    struct tfopt_device_step *before; /* computes gradients of the step, or NULL */
    int only_checks;  /* whether to check indices and to queue nothing; else they are not checked */
    int outside_part; /* set if the step returns that an index is out of range: where */
    int64_t outside;
};
