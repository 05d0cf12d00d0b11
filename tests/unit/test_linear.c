/* The linear kernels: equal bits from every variant, view and split, and the right sums.
 *
 * Every buffer ends at a page that cannot be touched and is exactly as long as its last element
 * needs, so a read past a row of w, a token of x or the bias faults with or without a sanitizer. */
#include "kernels/linear.h"

#include "base/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

typedef void linear_fn(const ssm__matrix *w, const float *bias, ssm__view x, ssm__view y,
                       int64_t tokens, int64_t row_begin, int64_t row_end);

typedef struct variant {
    const char *name;
    linear_fn *run;
} variant;

enum { MAX_VARIANTS = 3, PAD_BYTE = 0xa5 };

static int variants_here(variant out[MAX_VARIANTS])
{
    int count = 0;
    out[count++] = (variant){"portable", ssm__linear_portable};
#if defined(__x86_64__)
    if (ssm_isa_supported(SSM_ISA_AVX2)) {
        out[count++] = (variant){"avx2", ssm__linear_avx2};
    }
    if (ssm_isa_supported(SSM_ISA_AVX512)) {
        out[count++] = (variant){"avx512", ssm__linear_avx512};
    }
#endif
    return count;
}

/* ---- buffers between guard pages ------------------------------------------------------------- */

typedef struct fenced {
    unsigned char *map, *data;
    size_t map_bytes, bytes;
} fenced;

/* `bytes` bytes whose end is `slack` bytes (< 16, for odd addresses) before an untouchable page. */
static fenced fenced_create(size_t bytes, size_t slack)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    fenced f = {.bytes = bytes, .map_bytes = ((bytes + slack + page - 1) / page + 2) * page};
    f.map = mmap(NULL, f.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(f.map != MAP_FAILED);
    memset(f.map, PAD_BYTE, f.map_bytes);
    assert_int_equal(mprotect(f.map, page, PROT_NONE), 0);
    assert_int_equal(mprotect(f.map + f.map_bytes - page, page, PROT_NONE), 0);
    f.data = f.map + f.map_bytes - page - slack - bytes;
    return f;
}

static void fenced_free(fenced *f)
{
    munmap(f->map, f->map_bytes);
}

/* Bytes around the data that are still as they were made: false if any was written. */
static bool fenced_intact(const fenced *f)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const unsigned char *end = f->map + f->map_bytes - page;
    for (const unsigned char *byte = f->map + page; byte < end; byte++) {
        const bool inside = byte >= f->data && byte < f->data + f->bytes;
        if (!inside && *byte != PAD_BYTE) {
            return false;
        }
    }
    return true;
}

/* ---- activations in either layout ------------------------------------------------------------ */

typedef enum layout { ROW_MAJOR, TILE, LAYOUTS } layout;

typedef struct activations {
    fenced memory;
    ssm__view view;
    int64_t tokens, width;
} activations;

static int64_t place(const activations *a, int64_t t, int64_t k)
{
    return t * a->view.row_stride + k / SSM__LANES * a->view.group_stride + k % SSM__LANES;
}

static float *element(const activations *a, int64_t t, int64_t k)
{
    return a->view.data + place(a, t, k);
}

static activations activations_create(layout kind, int64_t tokens, int64_t width)
{
    activations a = {.tokens = tokens, .width = width};
    a.view.row_stride = kind == TILE ? SSM__LANES : (ptrdiff_t)width;
    a.view.group_stride = kind == TILE ? SSM__LANES * SSM__TILE_ROWS : SSM__LANES;
    const int64_t count = tokens == 0 ? 0 : place(&a, tokens - 1, width - 1) + 1;
    a.memory = fenced_create((size_t)count * sizeof(float), 0);
    a.view.data = (float *)(void *)a.memory.data;
    return a;
}

static void activations_copy(activations *to, const float *dense)
{
    for (int64_t t = 0; t < to->tokens; t++) {
        for (int64_t k = 0; k < to->width; k++) {
            *element(to, t, k) = dense[t * to->width + k];
        }
    }
}

static uint32_t bits_at(const activations *a, int64_t t, int64_t n)
{
    return ssm__bits_from_f32(*element(a, t, n));
}

/* A NaN equals a NaN: its payload is not promised. */
static bool same_bits(uint32_t a, uint32_t b)
{
    return a == b || (isnan(ssm__f32_from_bits(a)) && isnan(ssm__f32_from_bits(b)));
}

/* ---- one problem ----------------------------------------------------------------------------- */

typedef struct problem {
    int64_t tokens, rows, cols;
    ssm_dtype dtype;
    fenced weights, bias;
    ssm__matrix w;
    float *x;       /* dense [tokens][cols] */
    float *w_exact; /* dense [rows][cols] */
    bool biased;
} problem;

static size_t weight_bytes(ssm_dtype dtype)
{
    return dtype == SSM_DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
}

static float *floats(int64_t count)
{
    float *out = calloc((size_t)count + 1, sizeof *out);
    assert_non_null(out);
    return out;
}

/* Stores `value` rounded to the dtype and gives what was stored. */
static float store_weight(problem *p, int64_t index, float value)
{
    unsigned char *to = p->weights.data + (size_t)index * weight_bytes(p->dtype);
    if (p->dtype == SSM_DTYPE_F32) {
        memcpy(to, &value, sizeof value);
        return value;
    }
    const bool brain = p->dtype == SSM_DTYPE_BF16;
    const uint16_t half = brain ? ssm__bf16_from_f32(value) : ssm__f16_from_f32(value);
    memcpy(to, &half, sizeof half);
    return brain ? ssm__f32_from_bf16(half) : ssm__f32_from_f16(half);
}

static problem problem_create(ssm_rng *rng, ssm_dtype dtype, int64_t tokens, int64_t rows,
                              int64_t cols, bool biased)
{
    problem p = {.tokens = tokens, .rows = rows, .cols = cols, .dtype = dtype, .biased = biased};
    /* Checkpoints promise no alignment: one byte of slack makes every address odd. */
    const size_t slack = ssm_rng_below(rng, 2);
    p.weights = fenced_create((size_t)(rows * cols) * weight_bytes(dtype), slack);
    p.bias = fenced_create((size_t)rows * sizeof(float), 0);
    p.w = (ssm__matrix){p.weights.data, dtype, rows, cols};
    p.x = floats(tokens * cols);
    p.w_exact = floats(rows * cols);
    for (int64_t i = 0; i < rows * cols; i++) {
        p.w_exact[i] = store_weight(&p, i, (float)(2.0 * ssm_rng_uniform(rng) - 1.0));
    }
    for (int64_t i = 0; i < tokens * cols; i++) {
        p.x[i] = (float)(2.0 * ssm_rng_uniform(rng) - 1.0);
    }
    for (int64_t n = 0; n < rows; n++) {
        ((float *)(void *)p.bias.data)[n] = (float)(2.0 * ssm_rng_uniform(rng) - 1.0);
    }
    return p;
}

static void problem_free(problem *p)
{
    assert_true(fenced_intact(&p->weights));
    fenced_free(&p->weights);
    fenced_free(&p->bias);
    free(p->x);
    free(p->w_exact);
}

static const float *bias_of(const problem *p)
{
    return p->biased ? (const float *)(const void *)p->bias.data : NULL;
}

/* Rounding of the law in float32 against the exact sum. A lane takes ⌈K/16⌉ fused roundings, the
 * tree four, the bias one; each is at most u = 2⁻²⁴ of a partial sum that is at most Σ|xw| +
 * |bias|. (1 + 2⁻¹⁰) covers the terms in u² and the rounding of this bound itself for K < 2¹⁷. */
static void check_against_oracle(const problem *p, const activations *y)
{
    const double roundings = (double)((p->cols + 15) / 16 + 4 + (p->biased ? 1 : 0));
    for (int64_t t = 0; t < p->tokens; t++) {
        for (int64_t n = 0; n < p->rows; n++) {
            double sum = p->biased ? (double)bias_of(p)[n] : 0.0;
            double size = fabs(sum);
            for (int64_t k = 0; k < p->cols; k++) {
                const double product =
                    (double)p->x[t * p->cols + k] * (double)p->w_exact[n * p->cols + k];
                sum += product;
                size += fabs(product);
            }
            const double bound = roundings * 0x1p-24 * size * (1.0 + 0x1p-10);
            const double error = fabs((double)*element(y, t, n) - sum);
            if (!(error <= bound)) {
                fail_msg("K %lld, token %lld, row %lld: error %g over the bound %g",
                         (long long)p->cols, (long long)t, (long long)n, error, bound);
            }
        }
    }
}

static void check_equal(const problem *p, const char *what, const activations *expected,
                        const activations *found)
{
    for (int64_t t = 0; t < p->tokens; t++) {
        for (int64_t n = 0; n < p->rows; n++) {
            if (!same_bits(bits_at(expected, t, n), bits_at(found, t, n))) {
                fail_msg(
                    "%s, dtype %d, tokens %lld, rows %lld, K %lld: y[%lld][%lld] is %a, not %a",
                    what, (int)p->dtype, (long long)p->tokens, (long long)p->rows,
                    (long long)p->cols, (long long)t, (long long)n, (double)*element(found, t, n),
                    (double)*element(expected, t, n));
            }
        }
    }
    if (!fenced_intact(&found->memory)) {
        fail_msg("%s: bytes outside y were written", what);
    }
}

/* Every pair of layouts of x and y. */
static void check_layouts(const problem *p, const variant *v, const activations *expected)
{
    for (layout x_kind = ROW_MAJOR; x_kind < LAYOUTS; x_kind++) {
        for (layout y_kind = ROW_MAJOR; y_kind < LAYOUTS; y_kind++) {
            if (p->tokens > SSM__TILE && (x_kind == TILE || y_kind == TILE)) {
                continue;
            }
            activations x = activations_create(x_kind, p->tokens, p->cols);
            activations y = activations_create(y_kind, p->tokens, p->rows);
            activations_copy(&x, p->x);
            v->run(&p->w, bias_of(p), x.view, y.view, p->tokens, 0, p->rows);
            check_equal(p, v->name, expected, &y);
            fenced_free(&x.memory);
            fenced_free(&y.memory);
        }
    }
}

/* Rows cut at a multiple of 16, tokens cut anywhere and one by one (decode equals prefill). The
 * first cut also shows that nothing but the asked elements is written. */
static void check_splits(const problem *p, const variant *v, const activations *expected,
                         ssm_rng *rng)
{
    const layout kind = p->tokens > SSM__TILE ? ROW_MAJOR : TILE;
    activations x = activations_create(kind, p->tokens, p->cols);
    activations y = activations_create(ROW_MAJOR, p->tokens, p->rows);
    activations_copy(&x, p->x);
    const int64_t row_cut = 16 * (int64_t)ssm_rng_below(rng, (uint64_t)(p->rows + 15) / 16);
    const int64_t token_cut = (int64_t)ssm_rng_below(rng, (uint64_t)p->tokens + 1);
    ssm__view x_rest = x.view, y_rest = y.view;
    x_rest.data += token_cut * x.view.row_stride;
    y_rest.data += token_cut * y.view.row_stride;
    memset(y.memory.data, PAD_BYTE, y.memory.bytes);
    v->run(&p->w, bias_of(p), x.view, y.view, token_cut, row_cut, p->rows);
    const float untouched = ssm__f32_from_bits(0x01010101u * PAD_BYTE);
    for (int64_t t = 0; t < p->tokens; t++) {
        for (int64_t n = 0; n < (t < token_cut ? row_cut : p->rows); n++) {
            assert_true(bits_at(&y, t, n) == ssm__bits_from_f32(untouched));
        }
    }
    v->run(&p->w, bias_of(p), x.view, y.view, token_cut, 0, row_cut);
    v->run(&p->w, bias_of(p), x_rest, y_rest, p->tokens - token_cut, 0, p->rows);
    check_equal(p, "split", expected, &y);
    for (int64_t t = 0; t < p->tokens; t++) {
        ssm__view x_one = x.view, y_one = y.view;
        x_one.data += t * x.view.row_stride;
        y_one.data += t * y.view.row_stride;
        memset(y_one.data, PAD_BYTE, (size_t)p->rows * sizeof(float));
        v->run(&p->w, bias_of(p), x_one, y_one, 1, 0, p->rows);
    }
    check_equal(p, "one token at a time", expected, &y);
    fenced_free(&x.memory);
    fenced_free(&y.memory);
}

static void check_problem(problem *p, ssm_rng *rng, bool oracle)
{
    variant variants[MAX_VARIANTS];
    const int count = variants_here(variants);
    activations x = activations_create(ROW_MAJOR, p->tokens, p->cols);
    activations y = activations_create(ROW_MAJOR, p->tokens, p->rows);
    activations_copy(&x, p->x);
    ssm__linear_portable(&p->w, bias_of(p), x.view, y.view, p->tokens, 0, p->rows);
    if (oracle) {
        check_against_oracle(p, &y);
    }
    for (int i = 0; i < count; i++) {
        /* The portable loops are slow; small shapes show all there is to see. */
        if (i > 0 || p->tokens * p->rows * p->cols < 20000) {
            check_layouts(p, &variants[i], &y);
            check_splits(p, &variants[i], &y, rng);
        }
    }
    fenced_free(&x.memory);
    fenced_free(&y.memory);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void grid(ssm_dtype dtype)
{
    static const int64_t cols[] = {1, 2, 15, 16, 17, 31, 48, 80, 192, 768, 1536, 1537};
    static const int64_t rows[] = {1, 3, 16, 17, 80};
    static const int64_t tokens[] = {0, 1, 2, 3, 5, 7, 64, 65};
    ssm_rng rng = ssm_rng_create(20261130, "linear");
    bool biased = false;
    for (size_t k = 0; k < sizeof cols / sizeof *cols; k++) {
        for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
            for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
                biased = !biased;
                problem p = problem_create(&rng, dtype, tokens[t], rows[n], cols[k], biased);
                check_problem(&p, &rng, true);
                problem_free(&p);
            }
        }
    }
}

static void bits_and_sums_f32(void **state)
{
    (void)state;
    grid(SSM_DTYPE_F32);
}
static void bits_and_sums_f16(void **state)
{
    (void)state;
    grid(SSM_DTYPE_F16);
}
static void bits_and_sums_bf16(void **state)
{
    (void)state;
    grid(SSM_DTYPE_BF16);
}

/* More tokens than any block of tokens inside a variant. */
static void many_tokens(void **state)
{
    (void)state;
    ssm_rng rng = ssm_rng_create(20261130, "linear many");
    problem p = problem_create(&rng, SSM_DTYPE_F32, 1023, 37, 51, true);
    check_problem(&p, &rng, true);
    problem_free(&p);
    p = problem_create(&rng, SSM_DTYPE_BF16, 257, 48, 1600, false);
    check_problem(&p, &rng, true);
    problem_free(&p);
}

/* Every one of the 65536 patterns of a 16-bit weight, times one and summed with zeros, comes out as
 * the exact float32: denormals, infinities and NaN too. */
static void every_half(void **state)
{
    (void)state;
    variant variants[MAX_VARIANTS];
    const int count = variants_here(variants);
    static const ssm_dtype dtypes[] = {SSM_DTYPE_F16, SSM_DTYPE_BF16};
    enum { PATTERNS = 65536, COLS = 3 };
    uint16_t *weights = calloc((size_t)PATTERNS * COLS, sizeof *weights);
    float *y = floats(PATTERNS);
    assert_non_null(weights);
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < count; i++) {
            for (uint32_t pattern = 0; pattern < PATTERNS; pattern++) {
                weights[pattern * COLS + pattern % COLS] = (uint16_t)pattern;
            }
            float x[COLS] = {1.0f, 1.0f, 1.0f};
            const ssm__matrix w = {weights, dtypes[d], PATTERNS, COLS};
            variants[i].run(&w, NULL, (ssm__view){x, COLS, SSM__LANES},
                            (ssm__view){y, PATTERNS, SSM__LANES}, 1, 0, PATTERNS);
            for (uint32_t pattern = 0; pattern < PATTERNS; pattern++) {
                const float exact = dtypes[d] == SSM_DTYPE_F16
                                        ? ssm__f32_from_f16((uint16_t)pattern)
                                        : ssm__f32_from_bf16((uint16_t)pattern);
                /* −0 + 0 of the other lanes is +0. */
                const uint32_t expected = ssm__bits_from_f32(exact + 0.0f);
                assert_true(same_bits(ssm__bits_from_f32(y[pattern]), expected));
            }
        }
    }
    free(weights);
    free(y);
}

/* One weight row, one token: what comes out of variant `v`. */
static float one(const variant *v, const float *x, const float *w, int64_t cols, const float *bias)
{
    float y = 0.0f;
    float *x_data = floats(cols);
    memcpy(x_data, x, (size_t)cols * sizeof *x);
    const ssm__matrix matrix = {w, SSM_DTYPE_F32, 1, cols};
    v->run(&matrix, bias, (ssm__view){x_data, (ptrdiff_t)cols, SSM__LANES},
           (ssm__view){&y, 1, SSM__LANES}, 1, 0, 1);
    free(x_data);
    return y;
}

/* The sign of zero: products that underflow give −0 in a lane; sixteen of them give −0; the padding
 * of a partial group turns the other lanes, and so the sum, into +0; a bias of +0 does too. */
static void signs_of_zero(void **state)
{
    (void)state;
    variant variants[MAX_VARIANTS];
    const int count = variants_here(variants);
    float x[33], w[33];
    for (int k = 0; k < 33; k++) {
        x[k] = 1e-30f;
        w[k] = -1e-30f;
    }
    const float plus = 0.0f, minus = -0.0f;
    for (int i = 0; i < count; i++) {
        assert_true(signbit(one(&variants[i], x, w, 16, NULL)));
        assert_true(signbit(one(&variants[i], x, w, 32, NULL)));
        assert_true(signbit(one(&variants[i], x, w, 16, &minus)));
        assert_false(signbit(one(&variants[i], x, w, 16, &plus)));
        assert_false(signbit(one(&variants[i], x, w, 15, NULL)));
        assert_false(signbit(one(&variants[i], x, w, 17, NULL)));
        assert_false(signbit(one(&variants[i], x, w, 33, NULL)));
    }
}

static void infinities_and_nan(void **state)
{
    (void)state;
    variant variants[MAX_VARIANTS];
    const int count = variants_here(variants);
    for (int i = 0; i < count; i++) {
        for (int64_t cols = 1; cols < 40; cols++) {
            for (int64_t at = 0; at < cols; at++) {
                float x[40], w[40];
                for (int k = 0; k < 40; k++) {
                    x[k] = w[k] = 1.0f;
                }
                x[at] = INFINITY;
                assert_true(one(&variants[i], x, w, cols, NULL) == INFINITY);
                w[at] = -2.0f;
                assert_true(one(&variants[i], x, w, cols, NULL) == -INFINITY);
                w[at] = 0.0f;
                assert_true(isnan(one(&variants[i], x, w, cols, NULL)));
                x[at] = 1.0f;
                w[at] = NAN;
                assert_true(isnan(one(&variants[i], x, w, cols, NULL)));
            }
        }
    }
}

/* Bad tokens and bad rows stay where they are: tiles share registers, not values. */
static void one_bad_value_stays_in_its_row(void **state)
{
    (void)state;
    ssm_rng rng = ssm_rng_create(20261130, "linear nan");
    problem p = problem_create(&rng, SSM_DTYPE_F32, 13, 35, 50, true);
    p.x[6 * p.cols + 49] = NAN;
    p.w_exact[17 * p.cols + 3] = store_weight(&p, 17 * p.cols + 3, INFINITY);
    variant variants[MAX_VARIANTS];
    const int count = variants_here(variants);
    activations x = activations_create(TILE, p.tokens, p.cols);
    activations y = activations_create(TILE, p.tokens, p.rows);
    activations_copy(&x, p.x);
    for (int i = 0; i < count; i++) {
        variants[i].run(&p.w, bias_of(&p), x.view, y.view, p.tokens, 0, p.rows);
        for (int64_t t = 0; t < p.tokens; t++) {
            for (int64_t n = 0; n < p.rows; n++) {
                assert_int_equal(isfinite(*element(&y, t, n)) != 0, t != 6 && n != 17);
            }
        }
    }
    check_problem(&p, &rng, false);
    fenced_free(&x.memory);
    fenced_free(&y.memory);
    problem_free(&p);
}

/* The law itself, on a sum that any other order gets wrong: big values cancel only when lanes j and
 * j + 8 are added first. */
static void the_tree_is_the_tree(void **state)
{
    (void)state;
    variant variants[MAX_VARIANTS];
    const int count = variants_here(variants);
    float x[16], w[16];
    for (int j = 0; j < 16; j++) {
        x[j] = 1.0f;
        w[j] = (j < 8 ? 1.0f : -1.0f) * ldexpf(1.0f, 30 + 3 * (j % 8));
    }
    w[8] += 128.0f; /* −2³⁰ + 128 is exact in float32 */
    for (int i = 0; i < count; i++) {
        assert_true(one(&variants[i], x, w, 16, NULL) == 128.0f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_and_sums_f32),    cmocka_unit_test(bits_and_sums_f16),
        cmocka_unit_test(bits_and_sums_bf16),   cmocka_unit_test(many_tokens),
        cmocka_unit_test(every_half),           cmocka_unit_test(signs_of_zero),
        cmocka_unit_test(infinities_and_nan),   cmocka_unit_test(one_bad_value_stays_in_its_row),
        cmocka_unit_test(the_tree_is_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
