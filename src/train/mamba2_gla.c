/* train/mamba2_gla.c: gated linear attention in Mamba-2's block (docs/training.md): its gates, and
 * its recurrence as that of linear attention over pieces of a few tokens (kernels/body_gate.h). */
#include <string.h>

#include "train/mamba2_block.h"

/* ---- where things stand ------------------------------------------------------------------------
 */

static float *rows_of(const ssm__block_run *r, float *array, int64_t sequence, int64_t key,
                      int64_t token)
{
    return array + ((sequence * r->b.keys + key) * r->run->length + token) * r->b.padded_N;
}

int32_t *ssm__gla_counts(const ssm__block_run *r, int64_t sequence, int64_t key, int64_t token)
{
    return r->s->counts + (sequence * r->b.keys + key) * r->run->length + token;
}

/* Rows of p, or of its gradient, are those of all gates. */
static int64_t gate_width(const ssm__block_run *r)
{
    return r->b.keys * r->b.padded_N;
}

static float *gates_of(const ssm__block_run *r, float *array, int64_t sequence, int64_t key,
                       int64_t token)
{
    return array + (sequence * r->run->length + token) * gate_width(r) + key * r->b.padded_N;
}

/* W1 [r, D]. */
static ssm__matrix down_matrix(const ssm__block_run *r)
{
    return (ssm__matrix){ssm__block_value(r, SSM__BLOCK_GATE_DOWN), SSM_DTYPE_F32, r->b.gate_rank,
                         r->b.d_model};
}

/* The rows of W2 [JN, r] of a gate. */
static ssm__matrix up_matrix(const ssm__block_run *r, int64_t key)
{
    const float *first = ssm__block_value(r, SSM__BLOCK_GATE_UP) + key * r->b.N * r->b.gate_rank;
    return (ssm__matrix){first, SSM_DTYPE_F32, r->b.N, r->b.gate_rank};
}

/* d of α = exp(logsigmoid(p)/d). */
static double divisor_of(const ssm__block_run *r)
{
    const double divisor = r->run->config->gate_divisor;
    return divisor > 0 ? divisor : 16.0; /* the published gate's */
}

/* ---- forward -----------------------------------------------------------------------------------
 */

/* What the heads of a gate see of a tile. */
static void scale_keys(const ssm__block_run *r, int64_t sequence, int64_t key, int64_t token,
                       int64_t tokens)
{
    const int64_t N = r->b.padded_N, past = token * N, C = r->run->length * N;
    const float *bc = ssm__block_bc(r, sequence, key / (r->b.keys / r->b.bc_groups));
    float *seen = ssm__block_seen(r, sequence, key);
    const ssm__gate_args args = {.tokens = tokens,
                                 .d_state = N,
                                 .rate = (float)(-1.4426950408889634 / divisor_of(r)),
                                 .p = gates_of(r, r->k->p, sequence, key, token),
                                 .p_stride = (ptrdiff_t)gate_width(r),
                                 .B = bc + past,
                                 .C = bc + C + past,
                                 .scaled_B = seen + past,
                                 .scaled_C = seen + C + past,
                                 .factors = rows_of(r, r->s->factors, sequence, key, token),
                                 .totals = rows_of(r, r->s->totals, sequence, key, token),
                                 .counts = ssm__gla_counts(r, sequence, key, token)};
    r->run->kernels->training->ssd.gate(&args);
}

void ssm__gla_gates_again(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__block_run *r = context;
    const int64_t sequence = task / r->chunks, token = task % r->chunks * SSM__TILE;
    const int64_t tokens = ssm__least(SSM__TILE, r->run->length - token);
    for (int64_t key = 0; key < r->b.keys; key++) {
        scale_keys(r, sequence, key, token, tokens);
    }
}

void ssm__gla_gates(void *context, int64_t task, int thread)
{
    const ssm__block_run *r = context;
    const ssm__kernels *kernels = r->run->kernels;
    const int64_t sequence = task / r->chunks, token = task % r->chunks * SSM__TILE;
    const int64_t tokens = ssm__least(SSM__TILE, r->run->length - token);
    const int64_t first = sequence * r->run->length + token, rank = r->b.gate_rank;
    const float *in = r->run->in + first * r->b.d_model;
    const ssm__matrix down = down_matrix(r);
    const ssm__view low = ssm__rows_view(r->k->low + first * rank, rank);
    kernels->linear(&down, NULL, ssm__rows_view(in, r->b.d_model), low, tokens, 0, rank);
    for (int64_t key = 0; key < r->b.keys; key++) {
        const ssm__matrix up = up_matrix(r, key);
        const float *bias = ssm__block_value(r, SSM__BLOCK_GATE_BIAS) + key * r->b.N;
        const float *p = gates_of(r, r->k->p, sequence, key, token);
        kernels->linear(&up, bias, low, ssm__rows_view(p, gate_width(r)), tokens, 0, up.rows);
    }
    ssm__gla_gates_again(context, task, thread);
}

void ssm__gla_enter(const ssm__block_run *r, int64_t sequence, int64_t key, int64_t token,
                    const float *state, float *scaled)
{
    r->run->kernels->training->ssd.scale_state(state,
                                               rows_of(r, r->s->totals, sequence, key, token),
                                               r->b.padded_N, r->b.head_groups, scaled);
}

/* ---- backward ----------------------------------------------------------------------------------
 */

enum { PIECES = SSM__TILE }; /* most of a chunk: a token each */

/* Tokens before every piece of a chunk, and its end behind the last; returns how many. */
static int64_t cut(const ssm__block_run *r, int64_t sequence, int64_t key, int64_t token,
                   int64_t tokens, int64_t borders[PIECES + 1])
{
    int64_t count = 0;
    borders[0] = token;
    while (borders[count] < token + tokens) {
        const int32_t piece = *ssm__gla_counts(r, sequence, key, borders[count]);
        borders[count + 1] = borders[count] + piece;
        count++;
    }
    return count;
}

void ssm__gla_state_backward(const ssm__block_run *r, int64_t sequence, int64_t head, int64_t token,
                             int64_t tokens, float *dstate)
{
    const int64_t key = ssm__block_key(&r->b, head);
    int64_t borders[PIECES + 1];
    for (int64_t i = cut(r, sequence, key, token, tokens, borders) - 1; i >= 0; i--) {
        const ssm__ssd_chunk c =
            ssm__block_chunk(r, sequence, borders[i], borders[i + 1] - borders[i], head);
        r->run->kernels->training->ssd.state_backward(&c, dstate, dstate);
        ssm__gla_enter(r, sequence, key, borders[i], dstate, dstate);
    }
}

/* Memory of a chunk of a group. */
typedef struct memory {
    float *dproducts, *dB, *dC; /* [64][64], [64][N] each of a gate */
    float *passing;             /* [64][N] rows of the pieces' first tokens */
    float *dstate;              /* [head_groups][N][16] */
    float *states;              /* [64] of them: what the pieces are run from */
    float *scratch;
} memory;

static int64_t head_floats(const ssm__block_sizes *b)
{
    return b->head_groups * b->padded_N * SSM__LANES;
}

int64_t ssm__gla_floats(const ssm__block_sizes *b)
{
    return 3 * SSM__TILE * b->padded_N + (PIECES + 1) * head_floats(b);
}

static memory memory_of(const ssm__block_sizes *b, float *at)
{
    const int64_t rows = SSM__TILE * b->padded_N;
    memory m = {.dproducts = at, .dB = at + SSM__TILE * SSM__TILE};
    m.dC = m.dB + rows;
    m.passing = m.dC + rows;
    m.dstate = m.passing + rows;
    m.states = m.dstate + head_floats(b);
    m.scratch = m.states + PIECES * head_floats(b);
    return m;
}

/* States that the pieces are run from, from that before the chunk on. */
static void run_pieces(const ssm__block_run *r, int64_t sequence, int64_t head,
                       const int64_t *borders, int64_t pieces, const memory *m)
{
    const ssm__block_sizes *b = &r->b;
    const int64_t key = ssm__block_key(b, head), first = head * b->head_groups;
    const int64_t floats = head_floats(b);
    const float *before = ssm__block_state(r, r->k->states, sequence, borders[0] / SSM__TILE, head);
    for (int64_t i = 0; i < pieces; i++) {
        float *state = m->states + i * floats;
        ssm__gla_enter(r, sequence, key, borders[i], before, state);
        if (i + 1 < pieces) { /* S + Σ B u has the form of the state's gradient */
            ssm__ssd_chunk c =
                ssm__block_chunk(r, sequence, borders[i], borders[i + 1] - borders[i], head);
            c.C = c.B;
            c.dv = ssm__wide_group(r->s->u, sequence, first) + borders[i] * SSM__LANES;
            c.dv_stride = (ptrdiff_t)(r->s->u.rows * SSM__LANES);
            r->run->kernels->training->ssd.state_backward(&c, state, state + floats);
            before = state + floats;
        }
    }
}

static void back_head(const ssm__block_run *r, int64_t sequence, int64_t head,
                      const int64_t *borders, int64_t pieces, const memory *m)
{
    const ssm__block_sizes *b = &r->b;
    const ssm__ssd_kernels *kernels = &r->run->kernels->training->ssd;
    const int64_t key = ssm__block_key(b, head), N = b->padded_N, floats = head_floats(b);
    run_pieces(r, sequence, head, borders, pieces, m);
    memcpy(m->dstate, ssm__block_state(r, r->s->dstates, sequence, borders[0] / SSM__TILE, head),
           (size_t)floats * sizeof *m->dstate);
    for (int64_t i = pieces - 1; i >= 0; i--) {
        const int64_t row = borders[i] - borders[0];
        ssm__ssd_backward_args args =
            ssm__block_chunk_args(r, sequence, borders[i], borders[i + 1] - borders[i], head);
        args.state = m->states + i * floats;
        args.dstate = m->dstate;
        args.dproducts = m->dproducts + row * SSM__TILE;
        args.dB = m->dB + row * N;
        args.dC = m->dC + row * N;
        args.scratch = m->scratch;
        kernels->backward(&args);
        kernels->state_backward(&args.chunk, m->dstate, m->dstate);
        kernels->state_products(args.state, m->dstate, N, b->head_groups, m->passing + row * N);
        ssm__gla_enter(r, sequence, key, borders[i], m->dstate, m->dstate);
    }
}

/* dB and dC of what a gate's heads see → those of B and C, and dp. */
static void back_gate(const ssm__block_run *r, int64_t sequence, int64_t key,
                      const int64_t *borders, int64_t pieces, const memory *m)
{
    const int64_t N = r->b.padded_N, head = key * (r->b.H / r->b.keys);
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t token = borders[i], row = token - borders[0];
        const ssm__ssd_chunk c = ssm__block_chunk(r, sequence, token, borders[i + 1] - token, head);
        float *dB = m->dB + row * N, *dC = m->dC + row * N, own[SSM__GATE_PIECE];
        for (int64_t t = 0; t < c.tokens; t++) {
            float *pair = m->dproducts + (row + t) * SSM__TILE + t;
            own[t] = *pair;
            *pair = 0.0f;
        }
        ssm__block_back_products(r, &c, m->dproducts + row * SSM__TILE, dB, dC);
        const ssm__gate_backward_args args = {.tokens = c.tokens,
                                              .d_state = N,
                                              .share = (float)(1.0 / divisor_of(r)),
                                              .p = gates_of(r, r->k->p, sequence, key, token),
                                              .p_stride = (ptrdiff_t)gate_width(r),
                                              .scaled_B = c.B,
                                              .scaled_C = c.C,
                                              .factors =
                                                  rows_of(r, r->s->factors, sequence, key, token),
                                              .passing = m->passing + row * N,
                                              .own = own,
                                              .dB = dB,
                                              .dC = dC,
                                              .dp = gates_of(r, r->s->dp, sequence, key, token)};
        r->run->kernels->training->ssd.gate_backward(&args);
    }
}

void ssm__gla_back_chunk(const ssm__block_run *r, int64_t sequence, int64_t token, int64_t tokens,
                         int64_t group, float *rows, float *at)
{
    const ssm__block_sizes *b = &r->b;
    const int64_t keys = b->keys / b->bc_groups, heads = b->H / b->keys;
    const memory m = memory_of(b, at);
    for (int64_t key = group * keys; key < (group + 1) * keys; key++) {
        int64_t borders[PIECES + 1];
        const int64_t pieces = cut(r, sequence, key, token, tokens, borders);
        memset(m.dproducts, 0, (size_t)(m.dstate - m.dproducts) * sizeof *m.dproducts);
        for (int64_t head = key * heads; head < (key + 1) * heads; head++) {
            back_head(r, sequence, head, borders, pieces, &m);
        }
        back_gate(r, sequence, key, borders, pieces, &m);
        r->run->kernels->add(m.dB, rows, 2 * SSM__TILE * b->padded_N); /* dC follows */
    }
}

/* dlow of a tile. */
static void back_low(void *context, int64_t task, int thread)
{
    (void)thread;
    const ssm__block_run *r = context;
    const int64_t sequence = task / r->chunks, token = task % r->chunks * SSM__TILE;
    const int64_t tokens = ssm__least(SSM__TILE, r->run->length - token);
    const int64_t rank = r->b.gate_rank, first = sequence * r->run->length + token;
    for (int64_t key = 0; key < r->b.keys; key++) {
        const ssm__matrix up = up_matrix(r, key);
        const float *dp = gates_of(r, r->s->dp, sequence, key, token);
        r->run->kernels->training->linear_input_gradient(
            &up, ssm__rows_view(dp, gate_width(r)), ssm__rows_view(r->s->dlow + first * rank, rank),
            tokens, 0, rank, key > 0);
    }
}

/* Rows of W2 and of the bias of a gate. */
static void back_up(void *context, int64_t key, int thread)
{
    (void)thread;
    const ssm__block_run *r = context;
    const ssm__training_kernels *kernels = r->run->kernels->training;
    const int64_t rank = r->b.gate_rank, tokens = r->run->sequences * r->run->length;
    const ssm__view dp = ssm__rows_view(gates_of(r, r->s->dp, 0, key, 0), gate_width(r));
    kernels->linear_weight_gradient(
        dp, ssm__rows_view(r->k->low, rank), tokens, rank,
        ssm__block_gradient(r, SSM__BLOCK_GATE_UP) + key * r->b.N * rank, 0, r->b.N);
    kernels->column_sums(dp, tokens, ssm__block_gradient(r, SSM__BLOCK_GATE_BIAS) + key * r->b.N, 0,
                         r->b.N);
}

void ssm__gla_gradients(const ssm__block_run *r)
{
    const int64_t rank = r->b.gate_rank, D = r->b.d_model;
    void *context = (void *)(uintptr_t)r; /* tasks read it alone */
    ssm__pool_run(r->run->pool, back_low, context, r->run->sequences * r->chunks);
    ssm__pool_run(r->run->pool, back_up, context, r->b.keys);
    const ssm__weight_product down = {.dy = {.rows = r->s->dlow, .stride = rank},
                                      .x = {.rows = r->run->in, .stride = D},
                                      .rows = rank,
                                      .cols = D,
                                      .dw = ssm__block_gradient(r, SSM__BLOCK_GATE_DOWN)};
    ssm__weight_products(r->run, &down, 1);
}

void ssm__gla_back_in(const ssm__block_run *r, int64_t sequence, int64_t token, int64_t tokens)
{
    const ssm__matrix down = down_matrix(r);
    const int64_t first = sequence * r->run->length + token;
    r->run->kernels->training->linear_input_gradient(
        &down, ssm__rows_view(r->s->dlow + first * down.rows, down.rows),
        ssm__rows_view(r->run->din + first * down.cols, down.cols), tokens, 0, down.cols, true);
}
