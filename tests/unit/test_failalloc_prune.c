/* Smaller checkpoints when memory runs out: MEMORY, and no directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failalloc.h"

#include <ssmscope/prune.h>

#include "base/error.h"
#include "test_golden.h"

typedef struct fixture {
    char root[TEST_PATH_MAX], to[TEST_PATH_MAX];
    ssm_checkpoint *checkpoint;
    ssm_mask mask;
} fixture;

static ssm_status run_prune(void *context, ssm_error *err)
{
    const fixture *f = context;
    const ssm_prune_options options = {0};
    ssm_prune_result result;
    const bool armed = failalloc_disarm();
    if (access(f->to, F_OK) == 0) {
        test_remove_directory(f->to); /* of the run before */
    }
    failalloc_restore(armed);
    const ssm_status status =
        ssm_prune(f->checkpoint, &f->mask, &options, f->to, NULL, &result, err);
    if (status != SSM_STATUS_OK) {
        return access(f->to, F_OK) == 0 ? SSM_STATUS_FAILED : status;
    }
    return result.folded ? SSM_STATUS_OK : SSM_STATUS_CHECK;
}

static void pruning(void **state)
{
    (void)state;
    static const char *const models[] = {"mamba-tied", "mamba2-g4-limit"};
    for (int i = 0; i < 2; i++) {
        char path[TEST_PATH_MAX];
        fixture f = {0};
        test_make_directory(f.root);
        assert_true(snprintf(f.to, sizeof f.to, "%s/to", f.root) < (int)sizeof f.to);
        golden_model_path(path, models[i]);
        assert_int_equal(ssm_checkpoint_open(path, NULL, &f.checkpoint, NULL), SSM_STATUS_OK);
        const ssm_config *c = ssm_checkpoint_config(f.checkpoint);
        const int64_t rows = c->n_heads > 0 ? c->n_heads : c->d_inner;
        assert_int_equal(ssm_mask_create(c->n_layers, rows, c->d_state, &f.mask, NULL),
                         SSM_STATUS_OK);
        for (int64_t row = 0; row < c->n_layers * rows; row++) {
            f.mask.keep[row * c->d_state + 3] = 0;
        }
        assert_int_equal(ssm_mask_add_weights(&f.mask, NULL), SSM_STATUS_OK);
        f.mask.skip_weight[1] = 1.5F;
        const failalloc_case this = {
            .name = models[i], .run = run_prune, .context = &f, .dense = 60};
        assert_true(failalloc_check(&this));
        ssm_mask_free(&f.mask);
        ssm_checkpoint_close(f.checkpoint);
        test_remove_directory(f.root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pruning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
