/* tokenizer/pretokenizer_run.h: what the stages of one encode call share. */
#ifndef SSM_TOKENIZER_PRETOKENIZER_RUN_H
#define SSM_TOKENIZER_PRETOKENIZER_RUN_H

#include "tokenizer/pretokenizer.h"

struct ssm__pretokenizer_run {
    const ssm__pretokenizer *pretokenizer;
    const ssm__unicode *unicode;
    ssm__pattern_run *patterns[SSM__PRETOKENIZER_STAGES];
    const unsigned char *text;
    ssm_text buffers[2]; /* the text after a change; the other one is free for the next */
    int next_buffer;
    ssm__pieces pieces;
    bool first_at_start; /* the first piece begins where the whole text begins */
    ssm__pieces scratch;
    ssm__stretch *stretches;
    size_t n_stretches;
    size_t stretches_capacity;
};

/* Each replaces run->pieces by what they are cut into. Errors: MEMORY, FAILED. */
ssm_status ssm__cut_gpt2(ssm__pretokenizer_run *run, ssm_error *err);
ssm_status ssm__cut_pattern(ssm__pretokenizer_run *run, int index, ssm_error *err);
ssm_status ssm__cut_characters(ssm__pretokenizer_run *run, int index, ssm_error *err);
ssm_status ssm__cut_words(ssm__pretokenizer_run *run, ssm_error *err);

#endif
