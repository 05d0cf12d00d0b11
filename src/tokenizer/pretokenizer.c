/* tokenizer/pretokenizer.c: running the stages.
 *
 * Each stage cuts every piece on its own, as if it were the whole text. A stage that changes the
 * text (the blank of add_prefix_space, the byte alphabet) writes a new one. */
#include "tokenizer/pretokenizer.h"

#include <stdlib.h>

#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/gpt2_split.h"
#include "tokenizer/growable.h"

struct ssm__pretokenizer_run {
    const ssm__pretokenizer *pretokenizer;
    const ssm__unicode *unicode;
    ssm__pattern_run *patterns[SSM__PRETOKENIZER_STAGES];
    const unsigned char *text;
    ssm_text buffers[2]; /* the text after a change; the other one is free for the next */
    int next_buffer;
    ssm__pieces pieces;
    ssm__pieces scratch;
    ssm__stretch *stretches;
    size_t n_stretches;
    size_t stretches_capacity;
};

ssm_status ssm__pretokenizer_run_create(const ssm__pretokenizer *pretokenizer,
                                        const ssm__unicode *unicode, ssm__pretokenizer_run **out,
                                        ssm_error *err)
{
    ssm__pretokenizer_run *run = calloc(1, sizeof *run);
    if (run == NULL) {
        return ssm__fail_memory(err, "a pre-tokenizer", sizeof *run);
    }
    *out = run;
    run->pretokenizer = pretokenizer;
    run->unicode = unicode;
    for (int i = 0; i < pretokenizer->count; i++) {
        if (pretokenizer->stages[i].pattern != NULL) {
            SSM__TRY(
                ssm__pattern_run_create(pretokenizer->stages[i].pattern, &run->patterns[i], err));
        }
    }
    return SSM_STATUS_OK;
}

void ssm__pretokenizer_run_free(ssm__pretokenizer_run *run)
{
    if (run == NULL) {
        return;
    }
    for (int i = 0; i < SSM__PRETOKENIZER_STAGES; i++) {
        ssm__pattern_run_free(run->patterns[i]);
    }
    ssm_text_free(&run->buffers[0]);
    ssm_text_free(&run->buffers[1]);
    ssm__pieces_free(&run->pieces);
    ssm__pieces_free(&run->scratch);
    free(run->stretches);
    free(run);
}

static void swap_pieces(ssm__pretokenizer_run *run)
{
    ssm__pieces pieces = run->pieces;
    run->pieces = run->scratch;
    run->scratch = pieces;
}

/* ---- changing the text ----------------------------------------------------------------------- */

typedef ssm_status rewrite_fn(ssm_text *out, const unsigned char *piece, size_t bytes,
                              ssm_error *err);

static ssm_status rewrite_prefix(ssm_text *out, const unsigned char *piece, size_t bytes,
                                 ssm_error *err)
{
    if (piece[0] != ' ') {
        SSM__TRY(ssm__text_append(out, " ", 1, err));
    }
    return ssm__text_append(out, piece, bytes, err);
}

static ssm_status rewrite_alphabet(ssm_text *out, const unsigned char *piece, size_t bytes,
                                   ssm_error *err)
{
    SSM__TRY(ssm__text_reserve(out, 2 * bytes, err));
    unsigned char *to = (unsigned char *)out->data + out->bytes;
    out->bytes += ssm__bytes_to_chars(piece, bytes, to);
    return SSM_STATUS_OK;
}

static ssm_status rewrite(ssm__pretokenizer_run *run, rewrite_fn *fn, ssm_error *err)
{
    ssm_text *out = &run->buffers[run->next_buffer];
    run->next_buffer = 1 - run->next_buffer;
    out->bytes = 0;
    for (size_t i = 0; i < run->pieces.count; i++) {
        ssm__piece *piece = &run->pieces.data[i];
        size_t start = out->bytes;
        SSM__TRY(fn(out, run->text + piece->start, piece->end - piece->start, err));
        *piece = (ssm__piece){start, out->bytes};
    }
    run->text = (const unsigned char *)out->data;
    return SSM_STATUS_OK;
}

/* ---- cutting --------------------------------------------------------------------------------- */

static ssm_status split_gpt2(ssm__pretokenizer_run *run, ssm_error *err)
{
    run->scratch.count = 0;
    for (size_t i = 0; i < run->pieces.count; i++) {
        ssm__piece piece = run->pieces.data[i];
        while (piece.start < piece.end) {
            size_t length =
                ssm__gpt2_match(run->unicode, run->text + piece.start, piece.end - piece.start);
            SSM__TRY(ssm__pieces_add(&run->scratch, piece.start, piece.start + length, err));
            piece.start += length;
        }
    }
    swap_pieces(run);
    return SSM_STATUS_OK;
}

static ssm_status add_stretch(ssm__pretokenizer_run *run, size_t start, size_t end, bool delimiter,
                              ssm_error *err)
{
    void *stretches = run->stretches;
    SSM__TRY(ssm__grow(&stretches, &run->stretches_capacity, run->n_stretches + 1,
                       sizeof *run->stretches, "the pieces of a text", err));
    run->stretches = stretches;
    run->stretches[run->n_stretches++] = (ssm__stretch){start, end, delimiter};
    return SSM_STATUS_OK;
}

/* The matches in one piece and what lies between them. */
static ssm_status find_stretches(ssm__pretokenizer_run *run, ssm__pattern_run *pattern,
                                 ssm__piece piece, bool invert, ssm_error *err)
{
    const unsigned char *subject = run->text + piece.start;
    size_t bytes = piece.end - piece.start;
    size_t done = 0;
    size_t last_end = SIZE_MAX;
    run->n_stretches = 0;
    for (;;) {
        bool found;
        size_t start;
        size_t end;
        SSM__TRY(
            ssm__pattern_find(pattern, subject, bytes, done, last_end, &found, &start, &end, err));
        if (!found) {
            break;
        }
        if (done != start) {
            SSM__TRY(add_stretch(run, piece.start + done, piece.start + start, invert, err));
        }
        SSM__TRY(add_stretch(run, piece.start + start, piece.start + end, !invert, err));
        done = end;
        last_end = end;
    }
    return done == bytes ? SSM_STATUS_OK
                         : add_stretch(run, piece.start + done, piece.end, invert, err);
}

static ssm_status split_pattern(ssm__pretokenizer_run *run, int index, ssm_error *err)
{
    const ssm__pretokenizer_stage *stage = &run->pretokenizer->stages[index];
    run->scratch.count = 0;
    for (size_t i = 0; i < run->pieces.count; i++) {
        SSM__TRY(
            find_stretches(run, run->patterns[index], run->pieces.data[i], stage->invert, err));
        SSM__TRY(ssm__pieces_split(&run->scratch, run->stretches, run->n_stretches, stage->behavior,
                                   err));
    }
    swap_pieces(run);
    return SSM_STATUS_OK;
}

/* ---- all stages ------------------------------------------------------------------------------ */

static ssm_status byte_level(ssm__pretokenizer_run *run, int index, ssm_error *err)
{
    const ssm__pretokenizer_stage *stage = &run->pretokenizer->stages[index];
    if (stage->add_prefix_space) {
        SSM__TRY(rewrite(run, rewrite_prefix, err));
    }
    if (index + 1 == run->pretokenizer->count) {
        return SSM_STATUS_OK;
    }
    if (stage->use_regex) {
        SSM__TRY(split_gpt2(run, err));
    }
    return rewrite(run, rewrite_alphabet, err);
}

ssm_status ssm__pretokenize(ssm__pretokenizer_run *run, const char *input, size_t bytes,
                            const unsigned char **text, const ssm__pieces **pieces,
                            bool *split_last, ssm_error *err)
{
    const ssm__pretokenizer *pretokenizer = run->pretokenizer;
    run->text = (const unsigned char *)input;
    run->pieces.count = 0;
    SSM__TRY(ssm__pieces_add(&run->pieces, 0, bytes, err));
    for (int i = 0; i < pretokenizer->count; i++) {
        if (pretokenizer->stages[i].kind == SSM__PRETOKENIZER_BYTE_LEVEL) {
            SSM__TRY(byte_level(run, i, err));
        } else {
            SSM__TRY(split_pattern(run, i, err));
        }
    }
    *text = run->text;
    *pieces = &run->pieces;
    *split_last = pretokenizer->bytes && pretokenizer->stages[pretokenizer->count - 1].use_regex;
    return SSM_STATUS_OK;
}
