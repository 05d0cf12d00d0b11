/* test_rules_subject.h: recordings whose calibration windows tests of rules read for themselves. */
#ifndef TEST_RULES_SUBJECT_H
#define TEST_RULES_SUBJECT_H

#include <stdint.h>

#include "ssmscope/select.h"
#include "test_paths.h"

enum { RULES_LAYERS = 4, RULES_MODES = 25 /* and f */ };

/* A recording and what its calibration windows hold, read element by element. */
typedef struct rules_subject {
    char root[TEST_PATH_MAX];
    ssm_recording *recording;
    const ssm_recording_info *info;
    int64_t rows, n, entries;
    double *energy[RULES_LAYERS], *state[RULES_LAYERS], *read[RULES_LAYERS], *adjoint[RULES_LAYERS],
        *delta[RULES_LAYERS], *gram[RULES_LAYERS]; /* sums over the calibration windows */
} rules_subject;

/* A toy recording with N modes, and one of a model of tests/golden on random ids. Every helper
 * fails the test on any error. */
rules_subject rules_toy_subject(int64_t d_state);
rules_subject rules_golden_subject(const char *model);
void rules_subject_free(rules_subject *s);
/* How many sets a layer has. */
int64_t rules_sets_of(const rules_subject *s, const char *scope);
/* The mask of a rule with seed 5, checked for what it says of itself. */
ssm_mask rules_selected(const rules_subject *s, const char *rule, const char *scope,
                        int64_t budget);
/* Entry (i, j) of a row's calibration Gram, n = f. */
double rules_entry(const rules_subject *s, int64_t layer, int64_t row, int64_t i, int64_t j);
/* Σ_ij c_i c_j G_ij of a row. */
double rules_form(const rules_subject *s, int64_t layer, int64_t row, const double *c);
double rules_dropped_error(const rules_subject *s, int64_t layer, int64_t row, const uint8_t *keep);

#endif
