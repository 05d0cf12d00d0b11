/* tokenizer/pretokenizer.c: running the stages.
 *
 * Each stage cuts every piece on its own, as if it were the whole text. A stage that changes the
 * text (the blank of add_prefix_space, the byte alphabet, Metaspace) writes a new one. */
#include "tokenizer/pretokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/growable.h"
#include "tokenizer/pretokenizer_run.h"

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

/* ---- changing the text ----------------------------------------------------------------------- */

/* Appends what one piece becomes. `first`: it begins where the whole text begins. */
typedef ssm_status rewrite_fn(const ssm__pretokenizer_stage *stage, ssm_text *out,
                              const unsigned char *piece, size_t bytes, bool first, ssm_error *err);

static ssm_status rewrite_prefix(const ssm__pretokenizer_stage *stage, ssm_text *out,
                                 const unsigned char *piece, size_t bytes, bool first,
                                 ssm_error *err)
{
    (void)stage;
    (void)first;
    if (piece[0] != ' ') {
        SSM__TRY(ssm__text_append(out, " ", 1, err));
    }
    return ssm__text_append(out, piece, bytes, err);
}

static ssm_status rewrite_alphabet(const ssm__pretokenizer_stage *stage, ssm_text *out,
                                   const unsigned char *piece, size_t bytes, bool first,
                                   ssm_error *err)
{
    (void)stage;
    (void)first;
    SSM__TRY(ssm__text_reserve(out, 2 * bytes, err));
    unsigned char *to = (unsigned char *)out->data + out->bytes;
    out->bytes += ssm__bytes_to_chars(piece, bytes, to);
    return SSM_STATUS_OK;
}

/* Every blank becomes the replacement, and one more is put in front of a piece without one. */
static ssm_status rewrite_metaspace(const ssm__pretokenizer_stage *stage, ssm_text *out,
                                    const unsigned char *piece, size_t bytes, bool first,
                                    ssm_error *err)
{
    unsigned char mark[4];
    size_t length = ssm__utf8_write(stage->character, mark);
    bool marked = piece[0] == ' ' || (bytes >= length && memcmp(piece, mark, length) == 0);
    bool wanted =
        stage->prepend == SSM__PREPEND_ALWAYS || (stage->prepend == SSM__PREPEND_FIRST && first);
    if (wanted && !marked) {
        SSM__TRY(ssm__text_append(out, mark, length, err));
    }
    const unsigned char *end = piece + bytes;
    while (piece < end) {
        const unsigned char *blank = memchr(piece, ' ', (size_t)(end - piece));
        const unsigned char *stop = blank == NULL ? end : blank;
        SSM__TRY(ssm__text_append(out, piece, (size_t)(stop - piece), err));
        if (blank == NULL) {
            break;
        }
        SSM__TRY(ssm__text_append(out, mark, length, err));
        piece = blank + 1;
    }
    return SSM_STATUS_OK;
}

static ssm_status rewrite(ssm__pretokenizer_run *run, const ssm__pretokenizer_stage *stage,
                          rewrite_fn *fn, ssm_error *err)
{
    ssm_text *out = &run->buffers[run->next_buffer];
    run->next_buffer = 1 - run->next_buffer;
    out->bytes = 0;
    for (size_t i = 0; i < run->pieces.count; i++) {
        ssm__piece *piece = &run->pieces.data[i];
        size_t start = out->bytes;
        SSM__TRY(fn(stage, out, run->text + piece->start, piece->end - piece->start,
                    i == 0 && run->first_at_start, err));
        *piece = (ssm__piece){start, out->bytes};
    }
    run->text = (const unsigned char *)out->data;
    return SSM_STATUS_OK;
}

/* ---- all stages ------------------------------------------------------------------------------ */

static ssm_status byte_level(ssm__pretokenizer_run *run, int index, ssm_error *err)
{
    const ssm__pretokenizer_stage *stage = &run->pretokenizer->stages[index];
    if (stage->add_prefix_space) {
        SSM__TRY(rewrite(run, stage, rewrite_prefix, err));
    }
    if (index + 1 == run->pretokenizer->count && run->pretokenizer->bytes) {
        return SSM_STATUS_OK;
    }
    if (stage->use_regex) {
        SSM__TRY(ssm__cut_gpt2(run, err));
    }
    return rewrite(run, stage, rewrite_alphabet, err);
}

static ssm_status run_stage(ssm__pretokenizer_run *run, int index, ssm_error *err)
{
    const ssm__pretokenizer_stage *stage = &run->pretokenizer->stages[index];
    switch (stage->kind) {
    case SSM__PRETOKENIZER_BYTE_LEVEL:
        return byte_level(run, index, err);
    case SSM__PRETOKENIZER_SPLIT:
        return ssm__cut_pattern(run, index, err);
    case SSM__PRETOKENIZER_CHARACTERS:
        return ssm__cut_characters(run, index, err);
    case SSM__PRETOKENIZER_WORDS:
        return ssm__cut_words(run, err);
    case SSM__PRETOKENIZER_METASPACE:
        return rewrite(run, stage, rewrite_metaspace, err);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__pretokenize(ssm__pretokenizer_run *run, const char *input, size_t bytes,
                            bool at_start, const unsigned char **text, const ssm__pieces **pieces,
                            bool *split_last, ssm_error *err)
{
    const ssm__pretokenizer *pretokenizer = run->pretokenizer;
    run->text = (const unsigned char *)input;
    run->pieces.count = 0;
    run->first_at_start = at_start;
    SSM__TRY(ssm__pieces_add(&run->pieces, 0, bytes, err));
    for (int i = 0; i < pretokenizer->count; i++) {
        SSM__TRY(run_stage(run, i, err));
    }
    *text = run->text;
    *pieces = &run->pieces;
    *split_last = pretokenizer->bytes && pretokenizer->stages[pretokenizer->count - 1].use_regex;
    return SSM_STATUS_OK;
}
