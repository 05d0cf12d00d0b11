/* tokenizer/normalizer.h: rewriting of the text before it is cut. */
#ifndef SSM_TOKENIZER_NORMALIZER_H
#define SSM_TOKENIZER_NORMALIZER_H

#include <jansson.h>
#include <ssmscope/tokenizer.h>

#include "tokenizer/split_pattern.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_forms.h"

typedef enum ssm__normalizer_kind {
    SSM__NORMALIZER_FORM,             /* NFC, NFD, NFKC, NFKD */
    SSM__NORMALIZER_LOWERCASE,        /* every character on its own */
    SSM__NORMALIZER_STRIP_MARKS,      /* removes M* */
    SSM__NORMALIZER_STRIP_NONSPACING, /* removes Mn */
    SSM__NORMALIZER_NMT,              /* removes controls, blanks for odd white space */
    SSM__NORMALIZER_CLEAN,            /* the clean_text of BertNormalizer */
    SSM__NORMALIZER_SPACE_CJK,        /* blanks around CJK ideographs */
    SSM__NORMALIZER_STRIP,            /* white space at the ends */
    SSM__NORMALIZER_REPLACE,
    SSM__NORMALIZER_PREPEND,
    SSM__NORMALIZER_BYTE_LEVEL /* bytes written in the byte alphabet */
} ssm__normalizer_kind;

/* One stage; a Sequence is flattened, BertNormalizer is several stages. */
typedef struct ssm__normalizer_stage {
    ssm__normalizer_kind kind;
    ssm__unicode_form form;
    bool strip_left;
    bool strip_right;
    ssm__pattern *pattern; /* Replace */
    ssm_text content;      /* Replace, Prepend */
} ssm__normalizer_stage;

enum { SSM__NORMALIZER_STAGES = 24 };

typedef struct ssm__normalizer {
    ssm__normalizer_stage stages[SSM__NORMALIZER_STAGES];
    int count;
    bool maps_bytes; /* some stage is ByteLevel */
} ssm__normalizer;

/* spec: the "normalizer" of tokenizer.json; null is allowed. Errors: FILE, MEMORY. out starts from
 * {0} and is freed by ssm__normalizer_free also after a failure. */
ssm_status ssm__normalizer_parse(const char *path, const json_t *spec, ssm__normalizer *out,
                                 ssm_error *err);
void ssm__normalizer_free(ssm__normalizer *normalizer);

/* The state of one encode call. Start from {0}. */
typedef struct ssm__normalizer_run {
    const ssm__normalizer *normalizer;
    const ssm__unicode *unicode;
    ssm__pattern_run *patterns[SSM__NORMALIZER_STAGES];
    ssm_text buffers[2]; /* the text after a change; the other one is free for the next */
    int next_buffer;
    ssm__code_points points;
} ssm__normalizer_run;

/* Errors: MEMORY. ssm__normalizer_run_free frees also after a failure. */
ssm_status ssm__normalizer_run_create(const ssm__normalizer *normalizer,
                                      const ssm__unicode *unicode, ssm__normalizer_run *run,
                                      ssm_error *err);
void ssm__normalizer_run_free(ssm__normalizer_run *run);

/* *out: the normalised text, which belongs to the run until the next call, or the text itself where
 * nothing changes. *keeps_start: no character was taken from the beginning without another in its
 * place. text is valid UTF-8. Errors: MEMORY, FAILED (a pattern past its limit). */
ssm_status ssm__normalize(ssm__normalizer_run *run, const char *text, size_t bytes,
                          const char **out, size_t *out_bytes, bool *keeps_start, ssm_error *err);

#endif
