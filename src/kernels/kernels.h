/* kernels/kernels.h: every numeric kernel, one table per instruction set.
 *
 * Kernels validate nothing and cannot fail; model/ validates once. Every variant (portable, AVX2,
 * AVX-512) computes the same bits: the bodies are written once over the 16-lane vector of
 * vec_<isa>.h, whose operations all round the same way, and every inner product keeps the
 * summation law:
 *
 *   16 lanes; lane j sums k ≡ j (mod 16) by fused multiply-add in rising k, where x and w are
 * padded with +0 to a multiple of 16; then the fixed tree l[i] += l[i+8], then +4, +2, +1.
 *
 * Activations live in views: element (t, k) of a view is
 *   data[t·row_stride + (k/16)·group_stride + k%16].
 * A dense row-major matrix of width W has row_stride W, group_stride 16. A tile of at most 64
 * tokens has row_stride 16, group_stride 16·SSM__TILE_ROWS: groups of 16 channels, token after
 * token, so that a kernel over 16 channels reads one contiguous stream, and an inner product over
 * channels reads one 64-byte line a step. The odd number of rows keeps the lines of one token out
 * of one L1 set.
 */
#ifndef SSM_KERNELS_H
#define SSM_KERNELS_H

#include <ssmscope/checkpoint.h>

enum {
    SSM__LANES = 16,
    SSM__TILE = 64,        /* most tokens in a tile; the block of the instrument */
    SSM__TILE_ROWS = 65,   /* rows of a tile's group in memory */
    SSM__SUBSET_MODES = 20 /* most modes of which all sets are looked at */
};

typedef struct ssm__view {
    float *data;
    ptrdiff_t row_stride, group_stride; /* in floats */
} ssm__view;

/* A weight matrix [rows][cols], row-major, F32, F16 or BF16; data may be unaligned. */
typedef struct ssm__matrix {
    const void *data;
    ssm_dtype dtype;
    int64_t rows, cols;
} ssm__matrix;

/* What a recording pass accumulates for one group of 16 channels, all [row][16 channels].
 * Rows of one accumulator block: the Gram's upper triangle row-major over (m_0 … m_{N−1}, f), then
 * N state moments Σx², N read moments Σ(gC)², N adjoint moments Σ(gC)²w, then ΣΔ, then Σy². */
typedef struct ssm__mode_rows {
    int64_t n_gram; /* (N+1)(N+2)/2, or 0 without Gram */
    int64_t energy; /* first row of N energies Σm² without Gram; with it they are its diagonal */
    int64_t state, read, adjoint, delta, output; /* first rows */
    int64_t count;                               /* rows in all */
} ssm__mode_rows;
ssm__mode_rows ssm__mode_rows_of(int64_t d_state, bool gram);

/* One group (16 channels) through the selective scan. Pointers are to the group's own part. */
typedef struct ssm__scan_args {
    int64_t tokens;     /* 0 … 64 */
    int64_t d_state;    /* N ≥ 1 */
    const float *u;     /* [tokens][16] input after conv and SiLU */
    const float *delta; /* [tokens][16] after softplus, > 0 */
    const float *z;     /* [tokens][16] g = SiLU(z) */
    const float *B, *C; /* [tokens] rows of N at stride bc_stride */
    ptrdiff_t bc_stride;
    const float *A2;   /* [N][16] A·log2(e), negative */
    const float *D;    /* [16] */
    const float *keep; /* [N][16] factor of each mode in the output, or NULL: all 1 */
    float *state;      /* [N][16] in: before the first token, out: after the last */
    float *y;          /* [tokens][16] gated output Σ_i m_i + f; may alias u, not others */
    /* instrument, all NULL in a plain pass; the arithmetic of state and y is the same */
    float *modes;   /* [tokens][N+1][16] the summands m_0 … m_{N−1}, f */
    float *adjoint; /* [N][16] w of the adjoint Gramian, carried from call to call */
    float *moments; /* accumulator rows state … output of ssm__mode_rows, added to */
} ssm__scan_args;

/* Which modes 16 channels keep, where only those are carried. In slot s, channel c has its mode
 * modes[s][c]. Every channel has its modes of even index in rising order and those of odd index
 * likewise, so that both partial sums of y add up what a full scan adds up; the first `pairs` slots
 * hold even and odd ones in turn in all channels. A channel with fewer modes than the others ends
 * in slots whose bit is neither in even nor in odd. */
typedef struct ssm__kept_modes {
    int64_t slots; /* 0 … N */
    int64_t pairs; /* even, ≤ slots */
    bool shared;   /* all channels keep the same modes; those behind `pairs` have one parity */
    const uint16_t *modes;      /* [slots][16] */
    const uint16_t *even, *odd; /* [slots] bit c: the mode of channel c is even, is odd */
} ssm__kept_modes;

/* One head of causal attention against one block of keys; see body_attention.h. Before the first
 * block: maximum −inf, total 0, out 0; after the last, out/total is the head's output. */
typedef struct ssm__attend_args {
    int64_t queries;      /* ≤ 64 */
    int64_t keys;         /* 1 … 64 in this block */
    int64_t seen;         /* query t sees the first min(keys, seen + t) of them, at least one */
    float *scores;        /* [queries][64] scaled q·k of the keys; overwritten */
    const float *values;  /* [keys][width] */
    int64_t width;        /* of a head */
    float *maximum;       /* [queries] largest score so far */
    double *total;        /* [queries] Σ exp(score − maximum) */
    float *out;           /* [queries] rows of `width`: Σ exp(score − maximum) value */
    ptrdiff_t out_stride; /* of a query */
} ssm__attend_args;

/* Sixteen channels of one head through Mamba-2's recurrence: as ssm__scan_args, except that step
 * and decay are the head's and the gate may be left to what follows. */
typedef struct ssm__head_scan_args {
    int64_t tokens;     /* 0 … 64 */
    int64_t d_state;    /* N ≥ 1 */
    const float *u;     /* [tokens][16] x after conv and SiLU */
    const float *z;     /* [tokens][16] g = SiLU(z); NULL: g = 1 (the norm comes before the gate) */
    const float *delta; /* [tokens] of the head, after softplus and clamp, ≥ 0 */
    float A2;           /* of the head, A·log2(e), negative */
    const float *B, *C; /* [tokens] rows of N at stride bc_stride, of the head's group */
    ptrdiff_t bc_stride;
    int64_t tail;   /* of kept modes: the last `tail` are of one parity, those before in turn even
                     * and odd; 0 for all modes in their order. Plain passes only */
    bool tail_odd;  /* that parity */
    const float *D; /* [16] */
    const float *keep; /* [N][16] factor of each mode in the output, or NULL: all 1 */
    float *state;      /* [N][16] in: before the first token, out: after the last */
    float *y;          /* [tokens][16] Σ_i m_i + f, what the gated norm is given; may alias u */
    /* instrument, all NULL in a plain pass; the arithmetic of state and y is the same. modes NULL
     * and moments not: the summands are not stored */
    float *modes;   /* [tokens][N+1][16] the summands m_0 … m_{N−1}, f */
    float *adjoint; /* [16] w of the adjoint Gramian, the same for all modes, carried along */
    float *weights; /* [tokens] w of every token */
    float *gates;   /* [tokens][16] g², added to */
    float *moments; /* [2N+1][16] Σm² (N rows), Σx² (N rows), Σy², added to */
} ssm__head_scan_args;

/* A whole head of Mamba-2 over a chunk, in the dual form of the recurrence; tiles as above. */
typedef struct ssm__ssd_args {
    int64_t tokens;     /* 1 … 64 */
    int64_t d_state;    /* N ≥ 1 */
    int64_t groups;     /* ⌈P/16⌉ groups of channels */
    const float *u;     /* [groups][65][16] x after conv and SiLU */
    const float *z;     /* [groups][65][16] y is gated by SiLU(z); NULL: not */
    const float *delta; /* [tokens] after softplus and clamp, ≥ 0 */
    float A2;           /* A·log2(e), negative */
    const float *B, *C; /* [tokens] rows of N at stride bc_stride */
    ptrdiff_t bc_stride;
    const float *products; /* [tokens][64] C_t·B_s for s ≤ t; the rest is not looked at */
    const float *D;        /* [groups][16] */
    float *state;          /* [groups][N][16] in: before the first token, out: after the last */
    float *y;              /* [groups][65][16]; overlaps nothing */
} ssm__ssd_args;

typedef struct ssm__kernels {
    ssm_isa isa;

    /* y[t][n] = Σ_k x[t][k] w[n][k] (+ bias[n]) for t < tokens and n in [row_begin, row_end).
     * The sum keeps the summation law; the bias is added last. bias NULL: none. row_begin is a
     * multiple of 16. x is [tokens] × w->cols, y [tokens] × w->rows. y must not overlap x. */
    void (*linear)(const ssm__matrix *w, const float *bias, ssm__view x, ssm__view y,
                   int64_t tokens, int64_t row_begin, int64_t row_end);

    /* out = x · rsqrt(mean(x²) + eps) · weight over width D (weight NULL: none); dense rows.
     * mean by the summation law in float32. out may equal x. */
    void (*rmsnorm)(const float *x, const float *weight, float *out, int64_t tokens, int64_t width,
                    float eps);

    /* out = (x − mean x) · rsqrt(variance x + eps) · weight + bias over width D (bias NULL: none);
     * dense rows. Both means by the summation law in float32. out may equal x. */
    void (*layernorm)(const float *x, const float *weight, const float *bias, float *out,
                      int64_t tokens, int64_t width, float eps);

    /* Mamba-2's gated norm over one group of channels, in place in a tile of `groups` groups of 16:
     * y ← y · rsqrt(mean(y²) + eps) · weight, then · SiLU(z) unless z is NULL. y, z
     * [groups][65][16], weight [groups][16]; mean over `width` channels (padding lanes are zero):
     * lane j sums its channels by FMA in rising group, then the tree. A token whose sum overflows
     * gets NaN: divided by infinity it would be zeros, which pass for an output. */
    void (*gated_norm)(float *y, const float *weight, const float *z, int64_t tokens,
                       int64_t groups, int64_t width, float eps);

    /* Causal depthwise convolution and SiLU for one group of 16 channels:
     * out[t] = SiLU(bias + Σ_j w[j] x[t−(K−1)+j]), j rising, FMA. x, out [tokens][16]; weight
     * [K][16]; bias [16]; history [K−1][16] the inputs before the first token, updated. out must
     * not be x. sums [tokens][16] gets what SiLU is taken of; may be NULL. */
    void (*conv_silu)(const float *x, const float *weight, const float *bias, float *history,
                      float *out, float *sums, int64_t tokens, int64_t d_conv);

    /* The same without SiLU. */
    void (*conv)(const float *x, const float *weight, const float *bias, float *history, float *out,
                 int64_t tokens, int64_t d_conv);

    /* Elementwise on count floats (any count; out may equal x). */
    void (*softplus_bias)(const float *x, const float *bias, float *out, int64_t tokens);
    /* ^ one group: out[t] = softplus(x[t] + bias), x, out [tokens][16], bias [16] */
    void (*silu)(const float *x, float *out, int64_t count);
    void (*exp)(const float *x, float *out, int64_t count);
    void (*decay)(const float *p, float *out, int64_t count); /* 2^p, p ≤ 0, as the scan takes it */
    void (*add)(const float *x, float *y, int64_t count);     /* y += x */
    /* out = x·SiLU(gate) */
    void (*silu_mul)(const float *x, const float *gate, float *out, int64_t count);

    /* Selective scan of one group, with or without the instrument. Formulas (1)-(3) of
     * docs/instrument.md; m = (g·C)·x·keep rounded, y = (Σ_even m + Σ_odd m) + f in rising i. */
    void (*scan)(const ssm__scan_args *args);
    /* The same over the kept modes only: A2, keep and state have kept->slots rows, d_state is still
     * the length of the rows of B and C, and there is no instrument. Same bits as scan with factor
     * 0 for every mode that is dropped. */
    void (*scan_kept)(const ssm__scan_args *args, const ssm__kept_modes *kept);

    /* Mamba-2's recurrence for 16 channels of a head:
     *   x_i ← 2^(Δ·A2)·x_i + (Δu)·B_i;  m_i = (g·C_i)·x_i·keep_i;  f = g·(D·u)
     * and y summed as scan sums it. */
    void (*head_scan)(const ssm__head_scan_args *args);
    /* The same state and outputs (without mask and instrument) by matrix products; rounded
     * otherwise, see body_ssd.h. */
    void (*ssd)(const ssm__ssd_args *args);

    /* What reading moments of a head follow from, because B, C and decay are the head's:
     * reads[n] += Σ_t (Σ_lanes gates_t) C²_n and adjoint[n] += Σ_t w_t (Σ_lanes gates_t) C²_n by
     * FMA in rising t; gates, weights as head_scan left them; reads, adjoint [N rounded up to 16].
     */
    void (*head_reads)(const float *C, ptrdiff_t c_stride, const float *gates, const float *weights,
                       int64_t tokens, int64_t d_state, float *reads, float *adjoint);

    /* gram[row][16] += Σ_t m_i m_j by FMA in rising t for the upper triangle of (m_0 … m_{N}),
     * modes [tokens][N+1][16] as scan wrote them. */
    void (*gram)(const float *modes, int64_t tokens, int64_t n_modes, float *gram);
    /* energy[i][16] += Σ_t m_i², i < n_modes (stride of a token: (n_modes + 1)·16). */
    void (*energy)(const float *modes, int64_t tokens, int64_t n_modes, float *energy);

    /* sums[s][16] += Σ_t (Σ_i factors[s·set_stride + i·16] m_i)² for s < n_sets: by FMA in rising i
     * from 0, then in rising t. modes as for energy; factor 1: dropped, 0: kept. */
    void (*dropped)(const float *modes, int64_t tokens, int64_t n_modes, int64_t n_sets,
                    const float *factors, ptrdiff_t set_stride, float *sums);
    /* Turns modes [tokens][n_modes + 1][16 channels] into rows (token, channel): mode i of channel
     * p in token t goes to panels[i/16·panel_stride + row·16 + i%16], row = t·row_step + p, the
     * last signal to last[row]. The columns beyond n_modes of the last panel become 0. */
    void (*mode_rows)(const float *modes, int64_t tokens, int64_t n_modes, int64_t row_step,
                      float *panels, ptrdiff_t panel_stride, float *last);
    /* gram += XᵀX over the rows that mode_rows made, every entry by FMA in rising row in float32
     * from 0 and then added in float64. The result is laid out as ssm__rows_gram_at says; entries
     * that it does not name are not of use. */
    void (*gram_rows)(const float *panels, ptrdiff_t panel_stride, const float *last, int64_t rows,
                      int64_t n_modes, double *gram);
    /* Of each of 16 channels the `dropped` of n ≤ 20 modes with the least Σ_{i,j dropped} G_ij, all
     * sets being looked at. gram float64 [n(n+1)/2][16], upper triangle row by row. sets[16]: bit
     * i: mode i is dropped; errors[16] that sum. Of equal sums the set with the higher mode at the
     * first difference, seen from the highest mode down. 0 ≤ dropped ≤ n; the sums must be finite.
     */
    void (*least_dropped)(const double *gram, int64_t n_modes, int64_t n_dropped, uint32_t *sets,
                          double *errors);
    /* Softmax and weighted sum of one block of keys. */
    void (*attend)(const ssm__attend_args *args);

    /* log Σ exp(x) of one row: maximum, exp in float32, sum in float64 (16 lanes, the tree). */
    double (*logsumexp)(const float *x, int64_t count);

    /* out[row][16] += block[row][16] in float64, block is cleared; count floats, multiple of 16. */
    void (*flush)(float *block, double *out, int64_t count);

    const struct ssm__training_kernels *training; /* what training adds, kernels/training.h */
} ssm__kernels;

/* The Gram that gram_rows makes: doubles in all, and the place of entry (i, j), i ≤ j ≤ n_modes
 * (n_modes stands for the last signal). Panels of 16 rows from the diagonal on, then the row of the
 * last signal. */
int64_t ssm__rows_gram_count(int64_t n_modes);
int64_t ssm__rows_gram_at(int64_t i, int64_t j, int64_t n_modes);

/* The table of an instruction set that ssm_isa_supported says yes to; AUTO gives the best. */
const ssm__kernels *ssm__kernels_for(ssm_isa isa);

extern const ssm__kernels ssm__kernels_portable;
#if defined(__x86_64__)
extern const ssm__kernels ssm__kernels_avx2;
extern const ssm__kernels ssm__kernels_avx512;
#endif

#endif
