/* tokenizer/pretokenizer_cut.c: stages that cut pieces and leave the text as it is. */
#include "base/error.h"
#include "tokenizer/gpt2_split.h"
#include "tokenizer/growable.h"
#include "tokenizer/pretokenizer_run.h"

/* The new pieces take the place of the old ones. */
static void swap_pieces(ssm__pretokenizer_run *run)
{
    if (run->scratch.count == 0 || run->pieces.count == 0 ||
        run->scratch.data[0].start != run->pieces.data[0].start) {
        run->first_at_start = false; /* the beginning was removed */
    }
    ssm__pieces pieces = run->pieces;
    run->pieces = run->scratch;
    run->scratch = pieces;
}

ssm_status ssm__cut_gpt2(ssm__pretokenizer_run *run, ssm_error *err)
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

/* ---- delimiters ------------------------------------------------------------------------------ */

static ssm_status add_stretch(ssm__pretokenizer_run *run, size_t start, size_t end, bool delimiter,
                              ssm_error *err)
{
    if (run->n_stretches == run->stretches_capacity) {
        void *stretches = run->stretches;
        SSM__TRY(ssm__grow(&stretches, &run->stretches_capacity, run->n_stretches + 1,
                           sizeof *run->stretches, "the pieces of a text", err));
        run->stretches = stretches;
    }
    run->stretches[run->n_stretches++] = (ssm__stretch){start, end, delimiter};
    return SSM_STATUS_OK;
}

/* Appends the pieces that the stretches of one piece make to run->scratch. */
static ssm_status add_pieces(ssm__pretokenizer_run *run, ssm__piece piece,
                             ssm__split_behavior behavior, ssm_error *err)
{
    if (run->n_stretches == 1 && !run->stretches[0].delimiter) {
        return ssm__pieces_add(&run->scratch, piece.start, piece.end, err);
    }
    return ssm__pieces_split(&run->scratch, run->stretches, run->n_stretches, behavior, err);
}

/* The matches in one piece and what lies between them. */
static ssm_status find_matches(ssm__pretokenizer_run *run, ssm__pattern_run *pattern,
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

ssm_status ssm__cut_pattern(ssm__pretokenizer_run *run, int index, ssm_error *err)
{
    const ssm__pretokenizer_stage *stage = &run->pretokenizer->stages[index];
    run->scratch.count = 0;
    for (size_t i = 0; i < run->pieces.count; i++) {
        ssm__piece piece = run->pieces.data[i];
        SSM__TRY(find_matches(run, run->patterns[index], piece, stage->invert, err));
        SSM__TRY(add_pieces(run, piece, stage->behavior, err));
    }
    swap_pieces(run);
    return SSM_STATUS_OK;
}

/* The delimiters of one piece, each a stretch of its own, and what lies between them. */
static ssm_status find_characters(ssm__pretokenizer_run *run, const ssm__pretokenizer_stage *stage,
                                  ssm__piece piece, ssm_error *err)
{
    size_t done = piece.start;
    run->n_stretches = 0;
    for (size_t at = piece.start; at < piece.end;) {
        uint32_t c;
        size_t length = ssm__utf8_read(run->text + at, &c);
        bool delimiter = stage->class_bits != 0
                             ? (ssm__char_class(run->unicode, c) & stage->class_bits) != 0
                             : c == stage->character;
        if (delimiter) {
            if (done < at) {
                SSM__TRY(add_stretch(run, done, at, false, err));
            }
            SSM__TRY(add_stretch(run, at, at + length, true, err));
            done = at + length;
        }
        at += length;
    }
    return done == piece.end ? SSM_STATUS_OK : add_stretch(run, done, piece.end, false, err);
}

ssm_status ssm__cut_characters(ssm__pretokenizer_run *run, int index, ssm_error *err)
{
    const ssm__pretokenizer_stage *stage = &run->pretokenizer->stages[index];
    run->scratch.count = 0;
    for (size_t i = 0; i < run->pieces.count; i++) {
        SSM__TRY(find_characters(run, stage, run->pieces.data[i], err));
        SSM__TRY(add_pieces(run, run->pieces.data[i], stage->behavior, err));
    }
    swap_pieces(run);
    return SSM_STATUS_OK;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Runs of word characters and runs of what is neither word nor white space. */
static ssm_status cut_words(ssm__pretokenizer_run *run, ssm__piece piece, ssm_error *err)
{
    enum { KIND = SSM__CHAR_WORD | SSM__CHAR_SPACE };
    unsigned before = SSM__CHAR_SPACE;
    size_t start = piece.start;
    for (size_t at = piece.start; at < piece.end;) {
        uint32_t c;
        size_t length = ssm__utf8_read(run->text + at, &c);
        unsigned kind = ssm__char_class(run->unicode, c) & KIND;
        if (kind != before) {
            if (before != SSM__CHAR_SPACE) {
                SSM__TRY(ssm__pieces_add(&run->scratch, start, at, err));
            }
            start = at;
            before = kind;
        }
        at += length;
    }
    return before == SSM__CHAR_SPACE ? SSM_STATUS_OK
                                     : ssm__pieces_add(&run->scratch, start, piece.end, err);
}

ssm_status ssm__cut_words(ssm__pretokenizer_run *run, ssm_error *err)
{
    run->scratch.count = 0;
    for (size_t i = 0; i < run->pieces.count; i++) {
        SSM__TRY(cut_words(run, run->pieces.data[i], err));
    }
    swap_pieces(run);
    return SSM_STATUS_OK;
}
