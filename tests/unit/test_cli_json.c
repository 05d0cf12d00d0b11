/* What --json prints: one object a command, the names and types that other programs rely on, and
 * numbers that fit together. Everything runs on small pieces of the example texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>
#include <jansson.h>

#include "test_paths.h"

static char scratch[TEST_PATH_MAX];

/* Runs the program in the scratch directory; the exit status goes to *status (NULL: must be 0). */
static json_t *run_json(int *status, const char *line)
{
    char command[4096];
    snprintf(command, sizeof command, "cd '%s' && '%s' %s --json >out 2>err </dev/null", scratch,
             SSM_PROGRAM, line);
    int code = system(command);
    assert_true(WIFEXITED(code));
    if (status == NULL) {
        if (WEXITSTATUS(code) != 0) {
            print_error("%s: exit status %d\n", line, WEXITSTATUS(code));
        }
        assert_int_equal(WEXITSTATUS(code), 0);
    } else {
        *status = WEXITSTATUS(code);
    }
    char path[TEST_PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/out", scratch);
    json_error_t problem;
    /* Exactly one object: trailing text and duplicate keys are errors. */
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL) {
        print_error("%s: %s at byte %d\n", line, problem.text, problem.position);
    }
    assert_non_null(root);
    assert_true(json_is_object(root));
    return root;
}

/* Follows "layers.0.rho.8"; numbers are indices of arrays. */
static const json_t *at(const json_t *root, const char *path)
{
    char step[128];
    const json_t *value = root;
    while (value != NULL && *path != '\0') {
        size_t length = strcspn(path, ".");
        snprintf(step, sizeof step, "%.*s", (int)length, path);
        value = json_is_array(value) ? json_array_get(value, (size_t)strtoul(step, NULL, 10))
                                     : json_object_get(value, step);
        path += length + (path[length] == '.');
    }
    return value;
}

/* o object, a array, s string, i integer, r real, n real or null, b boolean. */
static bool has_type(const json_t *value, char type)
{
    switch (type) {
    case 'o':
        return json_is_object(value);
    case 'a':
        return json_is_array(value);
    case 's':
        return json_is_string(value);
    case 'i':
        return json_is_integer(value);
    case 'r':
        return json_is_real(value);
    case 'n':
        return json_is_real(value) || json_is_null(value);
    default:
        return json_is_boolean(value);
    }
}

/* wanted: "s schema", …, NULL. */
static void assert_members(const json_t *root, const char *const *wanted)
{
    int missing = 0;
    for (; *wanted != NULL; wanted++) {
        if (!has_type(at(root, *wanted + 2), (*wanted)[0])) {
            print_error("%s is missing or of another type\n", *wanted);
            missing++;
        }
    }
    assert_int_equal(missing, 0);
}

static double number(const json_t *root, const char *path)
{
    const json_t *value = at(root, path);
    if (!json_is_number(value)) {
        print_error("%s is no number\n", path);
    }
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void assert_text(const json_t *root, const char *path, const char *wanted)
{
    const char *text = json_string_value(at(root, path));
    assert_non_null(text);
    assert_string_equal(text, wanted);
}

static void assert_head(const json_t *root, const char *schema, const char *command)
{
    assert_text(root, "schema", schema);
    assert_text(root, "program_version", SSM_VERSION);
    assert_text(root, "command", command);
}

/* ---- the commands ---------------------------------------------------------------------------- */

static void info_names_the_model(void **state)
{
    (void)state;
    json_t *root = run_json(NULL, "--threads 2 info --quiet tiny --isa portable");
    static const char *const members[] = {"s model.path",
                                          "s model.digest",
                                          "s model.name",
                                          "s config.family",
                                          "i config.d_model",
                                          "i config.n_layers",
                                          "i config.d_inner",
                                          "i config.d_state",
                                          "i config.dt_rank",
                                          "b config.tied",
                                          "r config.norm_eps",
                                          "a config.dt_limits",
                                          "o weights.dtypes",
                                          "i weights.used.bytes",
                                          "i plan.state_bytes",
                                          "a notes",
                                          "i tokenizer.vocab_size",
                                          "s tokenizer.digest",
                                          NULL};
    assert_head(root, "ssmscope.info/1", "ssmscope info tiny");
    assert_members(root, members);
    /* 4 bytes · layers · d_inner · (d_state + d_conv − 1) */
    assert_int_equal((int)number(root, "plan.state_bytes"), 4 * 8 * 384 * 19);
    json_decref(root);
}

/* The state of one stream of text in float32: Mamba 4·layers·d_inner·(d_state + d_conv − 1);
 * Mamba-2 4·layers·(d_ssm·d_state + (d_ssm + 2·groups·d_state)·(d_conv − 1)); a layer of attention
 * keeps the last d_conv − 1 rows of q, k, v, and keys and values of every token. The same formulas
 * give the 38 MiB and 263.5 MiB that llama.cpp reports for falcon-mamba-7b and Mamba-Codestral-7B.
 */
static void plan_of_every_family(void **state)
{
    (void)state;
    static const struct {
        const char *shape;
        int state_bytes, token_bytes;
    } rows[] = {
        {"tiny-falcon-mamba", 4 * 2 * 128 * (16 + 3), 0},
        {"tiny-mamba2", 4 * 2 * (128 * 32 + (128 + 2 * 2 * 32) * 3), 0},
        {"tiny-mamba2attn", 4 * 2 * (128 * 32 + (128 + 2 * 32) * 3) + 4 * 2 * (4 + 2 * 2) * 16 * 3,
         4 * 2 * 2 * 2 * 16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[128];
        snprintf(line, sizeof line, "init --shape %s -o plan-%zu", rows[i].shape, i);
        json_decref(run_json(NULL, line));
        snprintf(line, sizeof line, "info plan-%zu", i);
        json_t *root = run_json(NULL, line);
        assert_int_equal((int)number(root, "plan.state_bytes"), rows[i].state_bytes);
        assert_int_equal((int)number(root, "plan.token_bytes"), rows[i].token_bytes);
        json_decref(root);
    }
}

static void tokenize_gives_ids(void **state)
{
    (void)state;
    json_t *root = run_json(NULL, "tokenize tiny --text a.txt");
    assert_head(root, "ssmscope.tokenize/1", "ssmscope tokenize tiny --text a.txt");
    assert_int_equal(json_array_size(at(root, "ids")), (int)number(root, "tokens"));
    assert_true(number(root, "tokens") > 1000);
    json_decref(root);
}

static void run_gives_what_it_generated(void **state)
{
    (void)state;
    json_t *greedy = run_json(NULL, "run tiny -p 'It is' -n 5");
    assert_head(greedy, "ssmscope.run/1", "ssmscope run tiny --prompt 'It is' --new-tokens 5");
    assert_null(json_object_get(greedy, "seed"));
    assert_int_equal(json_array_size(at(greedy, "generated.ids")), 5);
    assert_true(json_is_string(at(greedy, "generated.text")));
    assert_text(greedy, "generated.stopped", "length");
    json_t *drawn =
        run_json(NULL, "run tiny -p 'It is' -n 5 --temperature 1.50 --seed 7 --top-k 0");
    assert_head(drawn, "ssmscope.run/1",
                "ssmscope run tiny --prompt 'It is' --new-tokens 5 --temperature 1.5 --seed 7");
    assert_int_equal((int)number(drawn, "seed"), 7);
    json_decref(greedy);
    json_decref(drawn);
}

static void verify_gives_every_comparison(void **state)
{
    (void)state;
    json_t *root = run_json(NULL, "verify tiny one=a.txt two=b.txt --windows 2 --window 128 "
                                  "--budgets 4,12");
    static const char *const members[] = {"i reconstruction.0.layer",
                                          "i reconstruction.0.window",
                                          "r reconstruction.0.rel_l2",
                                          "r reconstruction.0.rel_l2_reference",
                                          "i deployment.0.layer",
                                          "i deployment.0.window",
                                          "i deployment.0.budget",
                                          "r deployment.0.predicted",
                                          "r deployment.0.actual",
                                          "r deployment.0.relative_deviation",
                                          "r summary.reconstruction_max",
                                          "r summary.reconstruction_reference_max",
                                          "r summary.deployment_median",
                                          "r summary.deployment_max",
                                          "b summary.passed",
                                          "s text.1.domain",
                                          "s text.1.path",
                                          "s text.1.digest",
                                          NULL};
    assert_head(root, "ssmscope.verify/1",
                "ssmscope verify tiny one=a.txt two=b.txt --windows 2 --window 128 --budgets 4,12");
    assert_members(root, members);
    assert_int_equal(json_array_size(at(root, "reconstruction")), 2 * 8);
    assert_int_equal(json_array_size(at(root, "deployment")), 2 * 8 * 2);
    assert_true(json_is_true(at(root, "summary.passed")));
    json_decref(root);
}

static void compare_names_the_first_divergence(void **state)
{
    (void)state;
    static const char *const members[] = {"s model.digest",
                                          "s other.path",
                                          "s other.digest",
                                          "i weights.count",
                                          "i weights.same",
                                          "a weights.differences",
                                          "i tokens",
                                          "r tolerance",
                                          "s hidden.8.after",
                                          "r hidden.8.max_abs",
                                          "r hidden.8.relative",
                                          "r hidden.8.relative_l2",
                                          "r hidden.8.cosine",
                                          "i hidden.8.at",
                                          "r logits.relative",
                                          "i logits.same_argmax",
                                          "b diverged",
                                          NULL};
    json_t *root = run_json(NULL, "compare tiny tiny");
    assert_head(root, "ssmscope.compare/1", "ssmscope compare tiny tiny");
    assert_members(root, members);
    assert_int_equal(json_array_size(at(root, "hidden")), 9);
    assert_true(json_is_null(at(root, "first_divergent")));
    assert_true(json_is_false(at(root, "diverged")));
    json_decref(root);
    int status = 0;
    root = run_json(&status, "compare tiny --reference --tolerance 1e-12");
    assert_int_equal(status, 5);
    assert_text(root, "first_divergent.after", "layer 0");
    assert_int_equal((int)number(root, "first_divergent.layer"), 0);
    assert_true(json_is_true(at(root, "diverged")));
    json_decref(root);
}

static void recording_metrics_mask_and_evaluation(void **state)
{
    (void)state;
    json_t *record = run_json(NULL, "record tiny one=a.txt two=b.txt -o rec --window 128 "
                                    "--calibration-windows 3 --evaluation-windows 4");
    static const char *const of_record[] = {"s model.digest", "s recording.digest", "i windows",
                                            "s text.0.digest", NULL};
    assert_head(record, "ssmscope.record/1",
                "ssmscope record tiny one=a.txt two=b.txt --window 128 --calibration-windows 3 "
                "--evaluation-windows 4");
    assert_members(record, of_record);
    assert_int_equal((int)number(record, "windows"), 2 * (3 + 4));

    json_t *select = run_json(NULL, "select rec --rule static --budget 8 -o mask");
    static const char *const of_select[] = {"s model.digest", "s recording.digest", "s mask.digest",
                                            "i seed", NULL};
    assert_head(select, "ssmscope.select/1", "ssmscope select rec --rule static --budget 8");
    assert_members(select, of_select);
    assert_true(number(select, "mask.kept") * 2 == number(select, "mask.modes"));
    assert_text(select, "model.digest", json_string_value(at(record, "model.digest")));
    assert_text(select, "recording.digest", json_string_value(at(record, "recording.digest")));

    json_t *eval = run_json(NULL, "eval tiny one=a.txt two=b.txt --mask mask --window 128 "
                                  "--windows 5 --offset 3 --bootstrap 500 --against unpruned");
    static const char *const of_eval[] = {"r perplexity",
                                          "r nll_sum",
                                          "i tokens",
                                          "r interval_window.0",
                                          "r interval_window.1",
                                          "r interval_block.1",
                                          "r domains.one.perplexity",
                                          "r domains.two.interval_block.0",
                                          "s windows.0.domain",
                                          "r windows.0.nll",
                                          "i windows.0.tokens",
                                          "r baseline.perplexity",
                                          "r baseline.domains.two.nll_sum",
                                          "r difference.perplexity",
                                          "r difference.interval_window.0",
                                          "r difference.interval_block.1",
                                          "r differences.unpruned.perplexity",
                                          "s protocol",
                                          "i seed",
                                          NULL};
    assert_members(eval, of_eval);
    assert_int_equal(json_array_size(at(eval, "windows")), 10);
    /* A window of T tokens gives T − 1 scored ones. */
    assert_int_equal((int)number(eval, "windows.0.tokens"), 127);
    assert_int_equal((int)number(eval, "tokens"), 10 * 127);
    double sum = 0;
    for (size_t i = 0; i < 10; i++) {
        sum += json_real_value(json_object_get(json_array_get(at(eval, "windows"), i), "nll"));
    }
    /* Ten float64 terms in another order. */
    assert_true(sum / number(eval, "nll_sum") - 1 < 1e-14);
    assert_true(number(eval, "nll_sum") / sum - 1 < 1e-14);
    double gap = number(eval, "perplexity") - number(eval, "baseline.perplexity");
    assert_true(number(eval, "difference.perplexity") - gap < 1e-9);
    assert_true(gap - number(eval, "difference.perplexity") < 1e-9);
    assert_true(number(eval, "differences.unpruned.perplexity") ==
                number(eval, "difference.perplexity"));
    assert_true(number(eval, "difference.interval_window.0") <=
                number(eval, "difference.interval_window.1"));
    json_decref(record);
    json_decref(select);
    json_decref(eval);
}

/* Runs after the recording was made. */
static void metrics_have_their_names(void **state)
{
    (void)state;
    json_t *root = run_json(NULL, "metrics rec --budgets 4,8,12");
    static const char *const members[] = {"i budgets.2",
                                          "i layers.7.layer",
                                          "r layers.7.rho.8",
                                          "r layers.7.rho_diag.8",
                                          "r layers.7.error_static.4",
                                          "r layers.7.error_diag.12",
                                          "r layers.7.churn_within.8",
                                          "r layers.7.churn_cross.8",
                                          "r layers.7.churn_null.8",
                                          "r layers.7.churn_ratio.8",
                                          "r layers.7.churn_margin.8",
                                          "r layers.7.set_churn.8",
                                          "r layers.7.energy_weighted_churn.8",
                                          "a layers.7.decorrelation.8",
                                          "i layers.7.decorrelation.8.0.lag",
                                          "r layers.7.decorrelation.8.0.jaccard",
                                          "r layers.7.decorrelation.8.0.cosine",
                                          "r layers.7.participation_ratio.median",
                                          "r layers.7.participation_ratio.p10",
                                          "r layers.7.participation_ratio.p90",
                                          "r layers.7.time_constant.median",
                                          "r layers.7.time_constant.deciles.8",
                                          "n layers.7.instability_by_decile.8.9",
                                          "n across_layers.8.pearson_rho_diag_rho",
                                          "n across_layers.8.spearman_energy_churn",
                                          "n across_layers.8.spearman_set_churn",
                                          "r across_layers.8.min_rho",
                                          "i across_layers.8.min_rho_layer",
                                          "a across_layers.8.migrating_layers",
                                          "r across_layers.8.band_median",
                                          "o across_layers.8.geometry",
                                          "s across_layers.8.geometry.kind",
                                          "i across_layers.8.static_tail",
                                          "i across_layers.8.layers_cross_above_within",
                                          "n across_layers.8.instability_by_decile.9",
                                          "r diagonal_identity_max_violation",
                                          "s recording.digest",
                                          "s model.digest",
                                          NULL};
    assert_head(root, "ssmscope.metrics/1", "ssmscope metrics rec --budgets 4,8,12");
    assert_members(root, members);
    assert_int_equal(json_array_size(at(root, "layers")), 8);
    assert_int_equal(json_array_size(at(root, "layers.0.instability_by_decile.8")), 10);
    assert_int_equal(json_array_size(at(root, "layers.0.time_constant.deciles")), 9);
    assert_true(number(root, "layers.3.churn_margin.8") ==
                number(root, "layers.3.churn_cross.8") - number(root, "layers.3.churn_null.8"));
    assert_true(number(root, "diagonal_identity_max_violation") <= 1e-6);
    double smallest = 2;
    for (int layer = 0; layer < 8; layer++) {
        char path[64];
        snprintf(path, sizeof path, "layers.%d.rho.8", layer);
        double rho = number(root, path);
        smallest = rho < smallest ? rho : smallest;
    }
    assert_true(number(root, "across_layers.8.min_rho") == smallest);
    json_decref(root);
}

/* One domain: cross churn does not exist, and what does not exist is null. */
static void unknown_numbers_are_null(void **state)
{
    (void)state;
    json_decref(run_json(NULL, "record tiny a.txt -o single --window 64 --calibration-windows 1 "
                               "--evaluation-windows 2 --no-gram"));
    json_t *root = run_json(NULL, "metrics single");
    assert_true(json_is_null(at(root, "layers.0.churn_cross.8")));
    assert_true(json_is_null(at(root, "layers.0.rho.8")));
    assert_true(json_is_real(at(root, "layers.0.rho_diag.8")));
    assert_true(json_is_null(at(root, "across_layers.8.min_rho_layer")));
    json_decref(root);
}

static void doctor_selftest_and_init(void **state)
{
    (void)state;
    json_t *doctor = run_json(NULL, "doctor tiny");
    assert_head(doctor, "ssmscope.doctor/1", "ssmscope doctor tiny");
    assert_int_equal((int)number(doctor, "problems"), 0);
    static const char *const of_doctor[] = {"s findings.0.kind", "s findings.0.topic",
                                            "s findings.0.text", "i notes",
                                            "b usable",          NULL};
    assert_members(doctor, of_doctor);
    json_decref(doctor);
    json_t *init = run_json(NULL, "init --shape tiny -o fresh --seed 3");
    assert_head(init, "ssmscope.init/1", "ssmscope init --shape tiny --seed 3");
    json_t *info = run_json(NULL, "info fresh");
    assert_text(info, "model.digest", json_string_value(at(init, "model.digest")));
    json_decref(info);
    json_decref(init);
    json_t *selftest = run_json(NULL, "selftest");
    assert_head(selftest, "ssmscope.selftest/1", "ssmscope selftest");
    assert_true(json_is_true(at(selftest, "passed")));
    assert_true(json_array_size(at(selftest, "checks")) >= 14);
    json_decref(selftest);
}

static int set_up(void **state)
{
    (void)state;
    test_make_directory(scratch);
    char command[4 * TEST_PATH_MAX];
    snprintf(command, sizeof command,
             "head -c 12000 '%s/examples/text/prose.txt' >'%s/a.txt' && "
             "head -c 12000 '%s/examples/text/code.txt' >'%s/b.txt'",
             SSM_SOURCE_DIR, scratch, SSM_SOURCE_DIR, scratch);
    return system(command);
}

static int tear_down(void **state)
{
    (void)state;
    test_remove_directory(scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(info_names_the_model),
        cmocka_unit_test(plan_of_every_family),
        cmocka_unit_test(tokenize_gives_ids),
        cmocka_unit_test(run_gives_what_it_generated),
        cmocka_unit_test(verify_gives_every_comparison),
        cmocka_unit_test(compare_names_the_first_divergence),
        cmocka_unit_test(recording_metrics_mask_and_evaluation),
        cmocka_unit_test(metrics_have_their_names),
        cmocka_unit_test(unknown_numbers_are_null),
        cmocka_unit_test(doctor_selftest_and_init),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
