/* Every kernel of the registry against its float64 oracle, in every instruction set of this
 * machine: within its tolerance, the same bits everywhere, nothing written outside its arrays. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/training.h"
#include "operators.h"

static double compare(const operator_entry *entry, const operator_run *run)
{
    double worst = 0.0;
    for (int o = 0; o < OPERATOR_OUTPUTS; o++) {
        for (int64_t i = 0; run->out[o] && i < run->out_count[o]; i++) {
            const double error = fabs((double)run->out[o][i] - run->want[o][i]) / run->scale[o][i];
            if (!(error <= entry->tolerance)) {
                fail_msg(
                    "%s tokens %lld a %lld b %lld: %s[%lld] = %.9g, expected %.17g, error %.3g "
                    "of its scale (tolerance %.3g: %s), seed %llu",
                    entry->name, (long long)run->shape.tokens, (long long)run->shape.a,
                    (long long)run->shape.b, run->out_name[o], (long long)i, (double)run->out[o][i],
                    run->want[o][i], error, entry->tolerance, entry->reason,
                    (unsigned long long)run->seed);
            }
            worst = error > worst ? error : worst;
        }
    }
    return worst;
}

/* Runs one shape in one instruction set; outputs must equal those in `first` when given. */
static double check(const operator_entry *entry, ssm_isa isa, operator_run *run,
                    const operator_run *first)
{
    entry->fast(ssm__kernels_for(isa), run);
    assert_true(operator_guards_hold(run));
    for (int o = 0; first && o < OPERATOR_OUTPUTS; o++) {
        if (run->out[o] &&
            memcmp(run->out[o], first->out[o], (size_t)run->out_count[o] * sizeof(float)) != 0) {
            fail_msg("%s: %s differs between %s and %s", entry->name, run->out_name[o],
                     ssm_isa_name(isa), ssm_isa_name(SSM_ISA_PORTABLE));
        }
    }
    return compare(entry, run);
}

static void every_operator_meets_its_oracle(void **state)
{
    (void)state;
    const operator_entry *entry;
    for (int e = 0; (entry = operator_at(e)) != NULL; e++) {
        double worst = 0.0;
        for (int s = 0; entry->test_shapes[s].tokens >= 0; s++) {
            const uint64_t seed = 1000 + (uint64_t)s;
            operator_run portable;
            assert_true(operator_create(entry, entry->test_shapes[s], seed, &portable));
            entry->oracle(&portable);
            worst = fmax(worst, check(entry, SSM_ISA_PORTABLE, &portable, NULL));
            for (int isa = SSM_ISA_AVX2; isa <= SSM_ISA_AVX512; isa++) {
                if (ssm_isa_supported((ssm_isa)isa)) {
                    operator_run run;
                    assert_true(operator_create(entry, entry->test_shapes[s], seed, &run));
                    entry->oracle(&run);
                    check(entry, (ssm_isa)isa, &run, &portable);
                    operator_free(&run);
                }
            }
            operator_free(&portable);
        }
        printf("%-16s %.2e of %.2e\n", entry->name, worst, entry->tolerance);
    }
}

/* A table without a hole, whatever the instruction set. */
static void every_table_is_complete(void **state)
{
    (void)state;
    for (int isa = SSM_ISA_PORTABLE; isa <= SSM_ISA_AVX512; isa++) {
        if (!ssm_isa_supported((ssm_isa)isa)) {
            continue;
        }
        const ssm__kernels *k = ssm__kernels_for((ssm_isa)isa);
        assert_int_equal(k->isa, isa);
        const unsigned char *bytes = (const unsigned char *)k;
        for (size_t at = offsetof(ssm__kernels, linear); at < sizeof *k; at += sizeof k->linear) {
            const void *entry = NULL;
            memcpy(&entry, bytes + at, sizeof entry);
            assert_non_null(entry);
        }
        bytes = (const unsigned char *)k->training;
        for (size_t at = 0; at < sizeof *k->training; at += sizeof k->linear) {
            const void *entry = NULL;
            memcpy(&entry, bytes + at, sizeof entry);
            assert_non_null(entry);
        }
    }
}

/* The scan's state and outputs do not depend on where a text is cut. */
static void scan_in_two_equals_scan_in_one(void **state)
{
    (void)state;
    for (int isa = SSM_ISA_PORTABLE; isa <= SSM_ISA_AVX512; isa++) {
        if (!ssm_isa_supported((ssm_isa)isa)) {
            continue;
        }
        operator_run whole, cut;
        const operator_shape shape = {37, 16, 0};
        assert_true(operator_create(&operator_scan, shape, 5, &whole));
        assert_true(operator_create(&operator_scan, shape, 5, &cut));
        const ssm__kernels *k = ssm__kernels_for((ssm_isa)isa);
        operator_scan.fast(k, &whole);
        float *const in0 = cut.in[0], *const in1 = cut.in[1], *const in2 = cut.in[2];
        float *const bc = cut.in[3], *const y = cut.out[0];
        for (int64_t done = 0; done < 37;) {
            const int64_t part = done == 0 ? 1 : done == 1 ? 16 : 20;
            cut.shape.tokens = part;
            cut.in[0] = in0 + done * 16;
            cut.in[1] = in1 + done * 16;
            cut.in[2] = in2 + done * 16;
            cut.in[3] = bc + done * 32;
            cut.out[0] = y + done * 16;
            operator_scan.fast(k, &cut);
            done += part;
        }
        assert_memory_equal(whole.out[0], y, 37 * 16 * sizeof(float));
        assert_memory_equal(whole.out[1], cut.out[1], 16 * 16 * sizeof(float));
        operator_free(&whole);
        operator_free(&cut);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_meets_its_oracle),
        cmocka_unit_test(every_table_is_complete),
        cmocka_unit_test(scan_in_two_equals_scan_in_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
