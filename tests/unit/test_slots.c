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
    assert_int_equal(count, 12 * 21 + 4);
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
    ssm__slot_name(ssm__slot_at(layers, count - 3), name);
    assert_string_equal(name, "backbone.norm_f.weight");
    ssm__slot_name(ssm__slot_at(layers, count - 2), name);
    assert_string_equal(name, "backbone.norm_f.bias");
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

enum { MAMBA = SSM_LAYER_MAMBA, MAMBA2 = SSM_LAYER_MAMBA2, ATTENTION = SSM_LAYER_ATTENTION };

typedef struct shape_row {
    int kind, id, n_dims;
    int64_t dims[3];
    const char *letters;
    bool matrix;
} shape_row;

/* V 100, D 10, E 20, N 4, K 3, R 2; G 2, H 6, S 18; M 7; 4 query and 2 key heads of 5, KA 2. */
static const shape_row shape_rows[] = {
    {MAMBA, SSM__SLOT_norm, 1, {10}, "[d_model]", false},
    {MAMBA, SSM__SLOT_in_proj, 2, {40, 10}, "[2 d_inner, d_model]", true},
    {MAMBA, SSM__SLOT_in_proj_bias, 1, {40}, "[2 d_inner]", false},
    {MAMBA, SSM__SLOT_conv1d, 3, {20, 1, 3}, "[d_inner, 1, d_conv]", false},
    {MAMBA, SSM__SLOT_conv1d_bias, 1, {20}, "[d_inner]", false},
    {MAMBA, SSM__SLOT_x_proj, 2, {10, 20}, "[dt_rank + 2 d_state, d_inner]", true},
    {MAMBA, SSM__SLOT_dt_proj, 2, {20, 2}, "[d_inner, dt_rank]", true},
    {MAMBA, SSM__SLOT_dt_proj_bias, 1, {20}, "[d_inner]", false},
    {MAMBA, SSM__SLOT_A_log, 2, {20, 4}, "[d_inner, d_state]", false},
    {MAMBA, SSM__SLOT_D, 1, {20}, "[d_inner]", false},
    {MAMBA, SSM__SLOT_out_proj, 2, {10, 20}, "[d_model, d_inner]", true},
    {MAMBA, SSM__SLOT_out_proj_bias, 1, {10}, "[d_model]", false},
    {MAMBA, SSM__SLOT_norm_bias, 1, {10}, "[d_model]", false},
    {MAMBA, SSM__SLOT_norm2, 1, {10}, "[d_model]", false},
    {MAMBA, SSM__SLOT_norm2_bias, 1, {10}, "[d_model]", false},
    {MAMBA, SSM__SLOT_fc1, 2, {14, 10}, "[2 d_mlp, d_model]", true},
    {MAMBA, SSM__SLOT_fc1_bias, 1, {14}, "[2 d_mlp]", false},
    {MAMBA, SSM__SLOT_fc2, 2, {10, 7}, "[d_model, d_mlp]", true},
    {MAMBA, SSM__SLOT_fc2_bias, 1, {10}, "[d_model]", false},
    {MAMBA, SSM__SLOT_embedding, 2, {100, 10}, "[vocab_size, d_model]", true},
    {MAMBA, SSM__SLOT_norm_f, 1, {10}, "[d_model]", false},
    {MAMBA, SSM__SLOT_norm_f_bias, 1, {10}, "[d_model]", false},
    {MAMBA, SSM__SLOT_lm_head, 2, {100, 10}, "[vocab_size, d_model]", true},

    {MAMBA2, SSM__SLOT_norm, 1, {10}, "[d_model]", false},
    {MAMBA2,
     SSM__SLOT_in_proj,
     2,
     {62, 10},
     "[2 d_inner + 2 n_groups d_state + n_heads, d_model]",
     true},
    {MAMBA2, SSM__SLOT_conv1d, 3, {34, 1, 3}, "[d_ssm + 2 n_groups d_state, 1, d_conv]", false},
    {MAMBA2, SSM__SLOT_conv1d_bias, 1, {34}, "[d_ssm + 2 n_groups d_state]", false},
    {MAMBA2, SSM__SLOT_dt_bias, 1, {6}, "[n_heads]", false},
    {MAMBA2, SSM__SLOT_A_log, 1, {6}, "[n_heads]", false},
    {MAMBA2, SSM__SLOT_D, 1, {6}, "[n_heads or d_ssm]", false},
    {MAMBA2, SSM__SLOT_gate_norm, 1, {18}, "[d_ssm]", false},
    {MAMBA2, SSM__SLOT_out_proj, 2, {10, 20}, "[d_model, d_inner]", true},

    {ATTENTION,
     SSM__SLOT_in_proj,
     2,
     {40, 10},
     "[(query heads + 2 key heads) head_dim, d_model]",
     true},
    {ATTENTION,
     SSM__SLOT_conv1d,
     3,
     {40, 1, 2},
     "[(query heads + 2 key heads) head_dim, 1, attention's d_conv]",
     false},
    {ATTENTION, SSM__SLOT_out_proj, 2, {10, 20}, "[d_model, query heads · head_dim]", true},
    {ATTENTION, SSM__SLOT_fc2, 2, {10, 7}, "[d_model, d_mlp]", true},
};

static void shapes_of_slots(void **state)
{
    (void)state;
    const ssm_config config = {.vocab_size = 100,
                               .d_model = 10,
                               .d_inner = 20,
                               .d_state = 4,
                               .d_conv = 3,
                               .dt_rank = 2,
                               .n_layers = 1,
                               .n_heads = 6,
                               .head_dim = 3,
                               .n_groups = 2,
                               .d_ssm = 18,
                               .d_mlp = 7,
                               .n_query_heads = 4,
                               .n_kv_heads = 2,
                               .attention_head_dim = 5,
                               .attention_conv = 2};
    for (size_t i = 0; i < sizeof shape_rows / sizeof shape_rows[0]; i++) {
        const shape_row *row = &shape_rows[i];
        const ssm_layer_kind kind = (ssm_layer_kind)row->kind;
        int64_t dims[SSM__SLOT_DIMS];
        char letters[SSM__LETTERS_MAX];
        assert_int_equal(ssm__slot_shape(&config, kind, row->id, dims), row->n_dims);
        assert_memory_equal(dims, row->dims, (size_t)row->n_dims * sizeof(int64_t));
        ssm__slot_letters(kind, row->id, letters);
        assert_string_equal(letters, row->letters);
        assert_int_equal(ssm__slot_is_matrix(row->id), row->matrix);
    }
    ssm_config per_channel = config;
    per_channel.D_per_channel = true;
    int64_t dims[SSM__SLOT_DIMS];
    assert_int_equal(ssm__slot_shape(&per_channel, SSM_LAYER_MAMBA2, SSM__SLOT_D, dims), 1);
    assert_int_equal(dims[0], 18);
}

/* Every slot has a shape in every kind that has it. */
static void needs_of_slots(void **state)
{
    (void)state;
    static const int required[SSM_LAYER_KINDS] = {9, 7, 3}; /* counted in the published code */
    for (int kind = 0; kind < SSM_LAYER_KINDS; kind++) {
        int count = 0;
        for (int id = 0; id < SSM__LAYER_SLOTS; id++) {
            const ssm__need need = ssm__slot_need((ssm_layer_kind)kind, id);
            char letters[SSM__LETTERS_MAX];
            ssm__slot_letters((ssm_layer_kind)kind, id, letters);
            assert_true(need == SSM__ABSENT || strcmp(letters, "[]") != 0);
            count += need == SSM__REQUIRED;
        }
        assert_int_equal(count, required[kind]);
        assert_int_equal(ssm__slot_need((ssm_layer_kind)kind, SSM__SLOT_embedding), SSM__REQUIRED);
        assert_int_equal(ssm__slot_need((ssm_layer_kind)kind, SSM__SLOT_lm_head), SSM__OPTIONAL);
    }
    assert_int_equal(ssm__slot_need(SSM_LAYER_MAMBA, SSM__SLOT_dt_bias), SSM__ABSENT);
    assert_int_equal(ssm__slot_need(SSM_LAYER_ATTENTION, SSM__SLOT_A_log), SSM__ABSENT);
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
        cmocka_unit_test(needs_of_slots),     cmocka_unit_test(tensors_of_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
