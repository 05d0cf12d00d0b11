/* test_tokenizer_run.h: a tokenizer beside what tokenizers made of the same strings. */
#ifndef TEST_TOKENIZER_RUN_H
#define TEST_TOKENIZER_RUN_H

#include <jansson.h>
#include <ssmscope/tokenizer.h>

#include "test_text_generator.h"

typedef struct golden_digests {
    uint64_t ids;
    uint64_t decoded;
} golden_digests;

typedef struct golden_run {
    ssm_tokenizer *tokenizer; /* owned */
    ssm_encode_options options;
    ssm_ids ids;
    ssm_text text;
} golden_run;
void golden_run_free(golden_run *run);

/* Digests of `count` generated strings from `first` on, as tools/make_tokenizer_goldens.py makes
 * them. */
golden_digests golden_digest(golden_run *run, text_generator *generator, int64_t first,
                             int64_t count);
/* {"text", "ids", "decoded", "skipped"}; fails the test with name and index. */
void golden_check_case(golden_run *run, const json_t *spec, const char *name, size_t index);
/* The texts of lists of random ids have the digest `expected` (16 hexadecimal digits), and
 * streaming gives the same. */
void golden_check_random(golden_run *run, const char *name, const char *expected);

#endif
