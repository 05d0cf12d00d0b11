/* The table of slots: names both ways, shapes, order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/slots.h"

static void names_round_trip(void **state)
{
    (void)state;
    const int64_t layers = 12;
    int64_t count = ssm__slot_count(layers);
    assert_int_equal(count, 12 * 12 + 3);
    for (int64_t i = 0; i < count; i++) {
        ssm__slot_place place = ssm__slot_at(layers, i);
        ssm__slot_place found = {-1, -2};
        char name[SSM__SLOT_NAME_MAX];
        ssm__slot_name(place, name);
        assert_true(ssm__slot_parse(name, &found));
        assert_int_equal(found.id, place.id);
        assert_int_equal(found.layer, place.layer);
    }
    char name[SSM__SLOT_NAME_MAX];
    ssm__slot_name(ssm__slot_at(layers, 0), name);
    assert_string_equal(name, "backbone.embeddings.weight");
    ssm__slot_name(ssm__slot_at(layers, 1), name);
    assert_string_equal(name, "backbone.layers.0.norm.weight");
    ssm__slot_name(ssm__slot_at(layers, count - 2), name);
    assert_string_equal(name, "backbone.norm_f.weight");
    ssm__slot_name(ssm__slot_at(layers, count - 1), name);
    assert_string_equal(name, "lm_head.weight");
}

static void prefixes_and_spellings(void **state)
{
    (void)state;
    static const char *const prefixes[] = {"",
                                           "backbone.",
                                           "model.",
                                           "model.backbone.",
                                           "module.",
                                           "_orig_mod.",
                                           "module._orig_mod.backbone."};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        char name[128];
        ssm__slot_place place;
        strcpy(name, prefixes[i]);
        strcat(name, "layers.17.mixer.A_log");
        assert_true(ssm__slot_parse(name, &place));
        assert_int_equal(place.id, SSM__SLOT_A_log);
        assert_int_equal(place.layer, 17);
        strcpy(name, prefixes[i]);
        strcat(name, "embedding.weight");
        assert_true(ssm__slot_parse(name, &place));
        assert_int_equal(place.id, SSM__SLOT_embedding);
        assert_int_equal(place.layer, -1);
    }
}

static void names_without_slot(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",
        "backbone.",
        "layers..norm.weight",
        "layers.01.norm.weight",
        "layers.-1.norm.weight",
        "layers.1x.norm.weight",
        "layers.12345678901234567890.norm.weight",
        "layers.0",
        "layers.0.",
        "layers.0.embeddings.weight",
        "backbone.mixer.A_log",
        "backbone.layers.0.mixer.A_log.weight",
        "backbone.layers.0.mixer.a_log",
        "backbones.layers.0.mixer.A_log",
        "norm_f.weight2",
        "norm.weight",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ssm__slot_place place;
        if (ssm__slot_parse(names[i], &place)) {
            fail_msg("\"%s\" has a slot", names[i]);
        }
    }
}

static void shapes_of_slots(void **state)
{
    (void)state;
    const ssm_config config = {.vocab_size = 100,
                               .d_model = 10,
                               .d_inner = 20,
                               .d_state = 4,
                               .d_conv = 3,
                               .dt_rank = 2,
                               .n_layers = 1};
    const struct {
        int id, n_dims;
        int64_t dims[3];
        const char *letters;
        bool matrix;
    } expected[] = {
        {SSM__SLOT_norm, 1, {10}, "[d_model]", false},
        {SSM__SLOT_in_proj, 2, {40, 10}, "[2 d_inner, d_model]", true},
        {SSM__SLOT_in_proj_bias, 1, {40}, "[2 d_inner]", false},
        {SSM__SLOT_conv1d, 3, {20, 1, 3}, "[d_inner, 1, d_conv]", false},
        {SSM__SLOT_conv1d_bias, 1, {20}, "[d_inner]", false},
        {SSM__SLOT_x_proj, 2, {10, 20}, "[dt_rank + 2 d_state, d_inner]", true},
        {SSM__SLOT_dt_proj, 2, {20, 2}, "[d_inner, dt_rank]", true},
        {SSM__SLOT_dt_proj_bias, 1, {20}, "[d_inner]", false},
        {SSM__SLOT_A_log, 2, {20, 4}, "[d_inner, d_state]", false},
        {SSM__SLOT_D, 1, {20}, "[d_inner]", false},
        {SSM__SLOT_out_proj, 2, {10, 20}, "[d_model, d_inner]", true},
        {SSM__SLOT_out_proj_bias, 1, {10}, "[d_model]", false},
        {SSM__SLOT_embedding, 2, {100, 10}, "[vocab_size, d_model]", true},
        {SSM__SLOT_norm_f, 1, {10}, "[d_model]", false},
        {SSM__SLOT_lm_head, 2, {100, 10}, "[vocab_size, d_model]", true},
    };
    assert_int_equal(sizeof expected / sizeof expected[0], SSM__SLOTS);
    for (size_t i = 0; i < SSM__SLOTS; i++) {
        int64_t dims[SSM__SLOT_DIMS];
        char letters[64];
        assert_int_equal(ssm__slot_shape(&config, expected[i].id, dims), expected[i].n_dims);
        assert_memory_equal(dims, expected[i].dims, (size_t)expected[i].n_dims * sizeof(int64_t));
        ssm__slot_letters(expected[i].id, letters, sizeof letters);
        assert_string_equal(letters, expected[i].letters);
        assert_int_equal(ssm__slot_is_matrix(expected[i].id), expected[i].matrix);
    }
}

static void tensors_of_slots(void **state)
{
    (void)state;
    ssm__layer_weights layers[2] = {0};
    ssm__weights weights = {.layers = layers};
    assert_ptr_equal(ssm__slot_tensor(&weights, (ssm__slot_place){SSM__SLOT_A_log, 1}),
                     &layers[1].A_log);
    assert_ptr_equal(ssm__slot_tensor(&weights, (ssm__slot_place){SSM__SLOT_lm_head, -1}),
                     &weights.lm_head);
    assert_ptr_equal(ssm__slot_tensor_const(&weights, (ssm__slot_place){SSM__SLOT_norm, 0}),
                     &layers[0].norm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_round_trip),   cmocka_unit_test(prefixes_and_spellings),
        cmocka_unit_test(names_without_slot), cmocka_unit_test(shapes_of_slots),
        cmocka_unit_test(tensors_of_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
