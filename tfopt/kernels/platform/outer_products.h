/* Sums of outer products of rows, in registers. Each entry is summed over the rows in their order,
   with products rounded before they are added, so all variants give the same bits. */
#ifndef TFOPT_OUTER_PRODUCTS_H
#define TFOPT_OUTER_PRODUCTS_H

#include <stddef.h>
#include <string.h>

/* Rows are stored in tiles of so many neighbouring columns: tile, row, column. */
#define TILE 8

/* A[j, k] += sum over i of left[i, j] * right[i, k] for k <= j < n and for j = n, k < n; a row of A
   has `width` columns, and a tile `height` rows. Meanwhile the bytes of the next rows are fetched,
   because reading them would else take as long as the half of this. */
#define OUTER_PRODUCTS(NAME, TARGET, VECTOR, ROWS)                                                \
    TARGET static void NAME(double *A, ptrdiff_t width, ptrdiff_t n, const double *left,          \
                            const double *right, ptrdiff_t rows, ptrdiff_t height,                \
                            const char *next, const char *end) {                                  \
        enum { VECTORS = TILE * sizeof(double) / sizeof(VECTOR) };                                \
        ptrdiff_t blocks = 0;                                                                     \
        for (ptrdiff_t j = 0; j <= n; j += ROWS)                                                  \
            blocks += ((j + ROWS < n ? j + ROWS : n) + TILE - 1) / TILE;                          \
        const ptrdiff_t burst = (end - next) / (64 * blocks) + 1;                                 \
        for (ptrdiff_t j = 0; j <= n; j += ROWS)                                                  \
            for (ptrdiff_t k = 0; k < j + ROWS && k < n; k += TILE) {                             \
                const double *l = left + j / TILE * height * TILE + j % TILE;                     \
                const double *r = right + k * height;                                             \
                VECTOR sums[ROWS][VECTORS];                                                       \
                for (ptrdiff_t line = 0; line < burst && next < end; line++, next += 64)          \
                    FETCH(next);                                                                  \
                for (int a = 0; a < ROWS; a++)                                                    \
                    for (int v = 0; v < (int)VECTORS; v++)                                        \
                        sums[a][v] = (VECTOR){0};                                                 \
                for (ptrdiff_t i = 0; i < rows; i++, l += TILE, r += TILE)                        \
                    for (int a = 0; a < ROWS; a++)                                                \
                        for (int v = 0; v < (int)VECTORS; v++)                                    \
                            sums[a][v] += l[a] * ((const VECTOR *)r)[v];                          \
                for (int a = 0; a < ROWS && j + a <= n; a++)                                      \
                    for (int c = 0; c < TILE && k + c <= j + a && k + c < n; c++)                 \
                        A[(j + a) * width + k + c] += ((const double *)sums[a])[c];               \
            }                                                                                     \
    }

/* A[a, c] += sum over i of left[a, i] * right[i, c], of a tile and of as many columns; entries of
   `left` are `across` and `along` numbers apart. */
#define TILE_PRODUCT(NAME, TARGET, VECTOR, ROWS)                                                  \
    TARGET static void NAME(double *A, const double *left, ptrdiff_t across, ptrdiff_t along,     \
                            const double *right, ptrdiff_t rows) {                                \
        enum { VECTORS = TILE * sizeof(double) / sizeof(VECTOR) };                                \
        for (int j = 0; j < TILE; j += ROWS, A += ROWS * TILE) {                                  \
            const double *l = left + j * across;                                                  \
            const VECTOR *r = (const VECTOR *)right;                                              \
            VECTOR sums[ROWS * VECTORS];                                                          \
            UNROLLED for (int k = 0; k < ROWS * (int)VECTORS; k++) sums[k] = (VECTOR){0};         \
            for (ptrdiff_t i = 0; i < rows; i++, l += along, r += VECTORS)                        \
                UNROLLED for (int k = 0; k < ROWS * (int)VECTORS; k++)                            \
                    sums[k] += l[k / VECTORS * across] * r[k % VECTORS];                          \
            UNROLLED for (int k = 0; k < ROWS * (int)VECTORS; k++)((VECTOR *)A)[k] += sums[k];    \
        }                                                                                         \
    }

#if defined(__GNUC__)
#define FETCH(at) __builtin_prefetch(at)
#define UNROLLED _Pragma("GCC unroll 8")
typedef double two_lanes __attribute__((vector_size(16), aligned(8), may_alias));
typedef double four_lanes __attribute__((vector_size(32), aligned(8), may_alias));
OUTER_PRODUCTS(outer_products_baseline, , two_lanes, 2)
TILE_PRODUCT(tile_product_baseline, , two_lanes, 2)
#else
#define FETCH(at) ((void)(at))
#define UNROLLED
OUTER_PRODUCTS(outer_products_baseline, , double, 2)
TILE_PRODUCT(tile_product_baseline, , double, 2)
#endif

typedef void (*outer_products_t)(double *A, ptrdiff_t width, ptrdiff_t n, const double *left,
                                 const double *right, ptrdiff_t rows, ptrdiff_t height,
                                 const char *next, const char *end);
typedef void (*tile_product_t)(double *A, const double *left, ptrdiff_t across, ptrdiff_t along,
                               const double *right, ptrdiff_t rows);

#if defined(__x86_64__) && defined(__GNUC__)
typedef double eight_lanes __attribute__((vector_size(64), aligned(8), may_alias));
OUTER_PRODUCTS(outer_products_v3, __attribute__((target("avx2"))), four_lanes, 4)
OUTER_PRODUCTS(outer_products_v4, __attribute__((target("avx512f"))), eight_lanes, 8)
TILE_PRODUCT(tile_product_v3, __attribute__((target("avx2"))), four_lanes, 4)
TILE_PRODUCT(tile_product_v4, __attribute__((target("avx512f"))), eight_lanes, 8)
static inline outer_products_t outer_products_for(const char *instruction_set) {
    return !strcmp(instruction_set, "v4")   ? outer_products_v4
           : !strcmp(instruction_set, "v3") ? outer_products_v3
                                            : outer_products_baseline;
}
static inline tile_product_t tile_product_for(const char *instruction_set) {
    return !strcmp(instruction_set, "v4")   ? tile_product_v4
           : !strcmp(instruction_set, "v3") ? tile_product_v3
                                            : tile_product_baseline;
}
#else
static inline outer_products_t outer_products_for(const char *instruction_set) {
    (void)instruction_set;
    return outer_products_baseline;
}
static inline tile_product_t tile_product_for(const char *instruction_set) {
    (void)instruction_set;
    return tile_product_baseline;
}
#endif

#endif
