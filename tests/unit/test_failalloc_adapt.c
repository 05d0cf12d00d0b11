/* Rules that choose for every window, and ghost, when memory runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failalloc.h"

#include <ssmscope/adapt.h>

#include "base/error.h"
#include "test_record.h"

enum { WINDOW = 80, DOMAINS = 2, TOKENS = 170, DENSE = 60 };

/* A model with a recording of its windows. */
typedef struct fixture {
    record_subject subject;
    char directory[TEST_PATH_MAX], recording[TEST_PATH_MAX + 32];
} fixture;

static fixture channels; /* Mamba-1 */
static fixture heads;    /* Mamba-2 */

static ssm_status expect(bool right)
{
    return right ? SSM_STATUS_OK : SSM_STATUS_CHECK;
}

typedef struct request {
    const char *name;
    const fixture *on;
    const char *rule, *scope;
} request;

/* Chooses for a window; half of the modes stay. */
static ssm_status use(const fixture *on, const ssm_adapter *adapter, int64_t budget, ssm_error *err)
{
    const ssm_chooser *chooser = ssm_adapt_chooser(adapter);
    const ssm_mask *mask = NULL;
    int64_t kept = 0;
    SSM__TRY(chooser->choose(chooser->context, 1, on->subject.corpus.domains[1].ids.data, WINDOW,
                             &mask, err));
    for (int64_t i = 0; i < mask->d_state; i++) {
        kept += mask->keep[i];
    }
    return expect(kept == budget);
}

static ssm_status run_adapter(void *context, ssm_error *err)
{
    const request *this = context;
    const int64_t budget = ssm_model_config(this->on->subject.model)->d_state / 2;
    const ssm_adapt_options options = {
        .rule = this->rule, .budget = budget, .scope = this->scope, .window = WINDOW};
    ssm_recording *recording = NULL;
    ssm_adapter *adapter = NULL;
    SSM__TRY(ssm_recording_open(this->on->recording, &recording, err));
    ssm_status status = ssm_adapt_create(this->on->subject.model, &this->on->subject.corpus,
                                         recording, &options, &adapter, err);
    ssm_recording_close(recording); /* it is not kept */
    if (status != SSM_STATUS_OK) {
        return adapter == NULL ? status : SSM_STATUS_CHECK;
    }
    status = use(this->on, adapter, budget, err);
    ssm_adapt_free(adapter);
    return status;
}

static ssm_status run_ghost(void *context, ssm_error *err)
{
    (void)context;
    ssm_recording *recording = NULL;
    ssm_mask mask;
    double zeroed = 0.0;
    SSM__TRY(ssm_recording_open(heads.recording, &recording, err));
    ssm_status status =
        ssm_ghost_select(heads.subject.model, recording, 2, NULL, &mask, &zeroed, err);
    if (status == SSM_STATUS_OK) {
        status = expect(zeroed > 0.5 && mask.budget == 2);
        ssm_mask_free(&mask);
    } else if (mask.keep != NULL) {
        status = SSM_STATUS_CHECK; /* nothing half-made is handed out */
    }
    ssm_recording_close(recording);
    return status;
}

static void nothing_leaks(void **state)
{
    (void)state;
    request requests[] = {
        {"scheduled, channels", &channels, "scheduled", "channel"},
        {"scheduled, a layer", &channels, "scheduled", "layer"},
        {"half, heads", &heads, "half", "head"},
        {"prefix, groups", &heads, "prefix:16", "group"},
        {"prefix, channels of Mamba-2", &heads, "prefix:16", "channel"},
        {"prefix-ramp, channels", &channels, "prefix-ramp:64", "channel"},
        {"prefix-ramp, heads", &heads, "prefix-ramp:64", "head"},
        {"regime, channels", &channels, "regime", "channel"},
        {"regime, heads", &heads, "regime", "layer"},
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        const failalloc_case this = {
            .name = requests[i].name, .run = run_adapter, .context = &requests[i], .dense = DENSE};
        assert_true(failalloc_check(&this));
    }
    const failalloc_case ghost = {.name = "ssm_ghost_select", .run = run_ghost, .dense = DENSE};
    assert_true(failalloc_check(&ghost));
}

static void open_fixture(fixture *this, const ssm_config *config)
{
    const ssm_record_options options = {
        .window = WINDOW, .calibration_windows = 1, .evaluation_windows = 1, .no_gram = true};
    test_make_directory(this->directory);
    snprintf(this->recording, sizeof this->recording, "%s/rec", this->directory);
    this->subject = record_random(test_model_toy(config, SSM_DTYPE_F32, 3, SSM_ISA_AUTO, NULL),
                                  DOMAINS, TOKENS, 70);
    record_into(&this->subject, this->recording, &options);
}

static int set_up(void **state)
{
    (void)state;
    const ssm_config one = toy_config();
    const ssm_config two = toy_config_heads();
    open_fixture(&channels, &one);
    open_fixture(&heads, &two);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture *const both[] = {&channels, &heads};
    for (int i = 0; i < 2; i++) {
        record_subject_free(&both[i]->subject);
        test_remove_directory(both[i]->directory);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_leaks, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
