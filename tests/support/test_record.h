/* test_record.h: making recordings in tests, and comparing them file by file. Every helper fails
 * the test on any error. */
#ifndef TEST_RECORD_H
#define TEST_RECORD_H

#include <ssmscope/instrument.h>

#include "test_session.h"

enum { RECORD_FILES_MAX = 64, RECORD_DOMAINS_MAX = 4 };

/* A model and texts for it. */
typedef struct record_subject {
    ssm_model *model;
    ssm_corpus corpus;
    bool made; /* corpus was made by record_random */
} record_subject;

/* models/tiny on examples/text: the first n_domains of prose, code, math. */
record_subject record_tiny(ssm_isa isa, int64_t n_domains);
/* Random ids for a model, which it takes: n_domains domains "a", "b", … of `tokens` ids; domain d's
 * from a stream of seed + d. */
record_subject record_random(ssm_model *model, int64_t n_domains, int64_t tokens, uint64_t seed);
/* toy_config on random ids of seed 60. */
record_subject record_toy(ssm_isa isa, int64_t n_domains, int64_t tokens);
/* A model of tests/golden (see test_golden.h) likewise. */
record_subject record_golden(const char *model, ssm_isa isa, int64_t n_domains, int64_t tokens);
void record_subject_free(record_subject *subject);

void record_into(const record_subject *subject, const char *directory,
                 const ssm_record_options *options);
/* The same into directory/rec of a fresh directory, and opens it. Owner of both: the caller. */
ssm_recording *record_and_open(const record_subject *subject, const ssm_record_options *options,
                               char directory[TEST_PATH_MAX]);

/* `count` numbers of a field of a layer, in float64. Owner: the caller, free. */
double *record_field(ssm_recording *recording, int64_t window, int64_t layer, const char *field,
                     int64_t count);

/* The files of a recording in name order ("recording.json", "windows/00000.safetensors", …). */
typedef struct record_file {
    char name[160];
    char bytes[64];   /* digest of the file */
    char tensors[64]; /* of names, types, shapes, data, by name; "" unless safetensors */
} record_file;
typedef struct record_files {
    int64_t count;
    record_file files[RECORD_FILES_MAX];
} record_files;

record_files record_list(const char *directory);
/* Fails unless both hold the same files with the same bytes; names the first that differs. */
void record_assert_same(const char *what, const record_files *got, const record_files *want);
/* Digest over name and tensors of all safetensors files: unlike the files' own bytes it does not
 * change with the version of the program, which stands in recording.json. */
void record_digest(const record_files *files, char out[64]);
/* Records into a fresh directory, lists it and removes it. */
record_files record_and_list(const record_subject *subject, const ssm_record_options *options);
/* Compares with the line "NAME DIGEST" of tests/golden/digests.txt. */
void record_check_golden(const char *name, const char *found);

#endif
