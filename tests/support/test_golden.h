/* test_golden.h: the tiny Hugging Face models of tests/golden/hf-tiny and hybrid, and what they
 * must give. */
#ifndef TEST_GOLDEN_H
#define TEST_GOLDEN_H

#include <stdint.h>

#include "test_paths.h"

enum { GOLDEN_SEQUENCES = 2 };

/* One sequence of a model: ids [count], logits [count][V], hidden [n_layers+1][count][D]
 * (embedding, then the stream after each block), both float64. */
typedef struct golden_sequence {
    int64_t count, n_logits, n_hidden;
    int32_t *ids;
    double *logits, *hidden;
} golden_sequence;

/* The model's directory; returns out. model: "falcon" is hf-tiny/falcon, "hybrid/transformer"
 * itself.
 */
const char *golden_model_path(char out[TEST_PATH_MAX], const char *model);
/* Fails the test when the file is not as expected. Owner: the caller, golden_free. */
golden_sequence golden_read(const char *model, int sequence);
/* The same sequence's logits [count][V] with a norm for every group of channels (Mamba-2 with
 * groups). Owner: the caller, free. */
double *golden_grouped_logits(const char *model, int sequence, int64_t *count);
void golden_free(golden_sequence *golden);

#endif
