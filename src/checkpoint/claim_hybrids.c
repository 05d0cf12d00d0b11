/* Families of which Mamba layers are a part. None of them is computed yet; the message names the
 * family and the first layer that is more than a Mamba layer. Keys: the families' configuration
 * classes in Hugging Face transformers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "checkpoint/claim_rules.h"

typedef struct hybrid {
    const char *model_type, *name;
    const char *layers; /* what its layers are, where no list of the configuration says it */
} hybrid;

static const hybrid hybrids[] = {
    {"jamba", "Jamba", "layer 0 has norms on dt, B and C and an MLP"},
    {"zamba", "Zamba", "its layers share blocks of attention"},
    {"zamba2", "Zamba2", "its layers share blocks of attention"},
    {"bamba", "Bamba", "layer 0 has an MLP of another form"},
    {"nemotron_h", "Nemotron-H", "its layers are Mamba-2, attention and MLP"},
    {"nemotronh", "Nemotron-H", "its layers are Mamba-2, attention and MLP"},
    {"granitemoehybrid", "Granite (GraniteMoeHybrid)", "layer 0 is moe"},
    {"falcon_h1", "Falcon-H1", "layer 0 is attention and Mamba-2 side by side"},
    {"mamba3", "Mamba-3", "layer 0 is Mamba3"},
};

typedef struct odd_layer {
    const char *key; /* NULL: none was found */
    int64_t layer;
    char kind[48];
} odd_layer;

static const hybrid *family_of(const json_t *root)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    for (size_t i = 0; type != NULL && i < sizeof hybrids / sizeof hybrids[0]; i++) {
        if (strcmp(type, hybrids[i].model_type) == 0) {
            return &hybrids[i];
        }
    }
    return NULL;
}

static bool set_layer(odd_layer *out, const char *key, int64_t layer, const char *kind)
{
    if (out->key == NULL || layer < out->layer) {
        out->key = key;
        out->layer = layer;
        snprintf(out->kind, sizeof out->kind, "%s", kind);
    }
    return true;
}

/* A list with a name for every layer. */
static bool find_in_list(const json_t *root, const char *key, odd_layer *out)
{
    const json_t *list = json_object_get(root, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *kind = json_string_value(json_array_get(list, i));
        if (kind == NULL) {
            return set_layer(out, key, (int64_t)i, "not named by a text");
        }
        if (strcmp(kind, "mamba") != 0 && strcmp(kind, "mamba2") != 0) {
            char text[48];
            ssm__claim_text(json_array_get(list, i), text, sizeof text);
            size_t length = strlen(text);
            text[length - 1] = '\0'; /* without the quotes */
            return set_layer(out, key, (int64_t)i, text + 1);
        }
    }
    return false;
}

/* Nemotron-H: a letter for every layer. */
static bool find_in_pattern(const json_t *root, odd_layer *out)
{
    static const char key[] = "hybrid_override_pattern";
    const char *pattern = json_string_value(json_object_get(root, key));
    for (int64_t i = 0; pattern != NULL && pattern[i] != '\0'; i++) {
        switch (pattern[i]) {
        case 'M':
            break;
        case '*':
            return set_layer(out, key, i, "attention");
        case '-':
            return set_layer(out, key, i, "mlp");
        case 'E':
            return set_layer(out, key, i, "moe");
        default:
            return set_layer(out, key, i, "of an unknown kind");
        }
    }
    return false;
}

/* Bamba: the numbers of the attention layers. */
static bool find_in_indices(const json_t *root, odd_layer *out)
{
    static const char key[] = "attn_layer_indices";
    const json_t *list = json_object_get(root, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *layer = json_array_get(list, i);
        set_layer(out, key, json_is_integer(layer) ? json_integer_value(layer) : 0, "attention");
    }
    return json_array_size(list) > 0;
}

/* Jamba: every period-th layer from offset on. */
static bool find_by_period(const json_t *root, odd_layer *out)
{
    const struct {
        const char *period, *offset, *kind;
    } rows[] = {{"expert_layer_period", "expert_layer_offset", "moe"},
                {"attn_layer_period", "attn_layer_offset", "attention"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const json_t *period = json_object_get(root, rows[i].period);
        if (json_is_integer(period)) {
            json_int_t offset = json_integer_value(json_object_get(root, rows[i].offset));
            set_layer(out, rows[i].period, offset < 0 ? 0 : offset, rows[i].kind);
        }
    }
    return out->key != NULL;
}

ssm_status ssm__claims_refuse_hybrid(const char *path, const json_t *root, ssm_error *err)
{
    const hybrid *family = family_of(root);
    odd_layer odd = {0};
    bool found = find_in_list(root, "layers_block_type", &odd) ||
                 find_in_list(root, "layer_types", &odd) || find_in_pattern(root, &odd) ||
                 find_in_indices(root, &odd) || find_by_period(root, &odd);
    if (!found && family == NULL) {
        return SSM_STATUS_OK;
    }
    const char *name = family == NULL ? "a hybrid model" : family->name;
    if (!found) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, "model_type"),
                         "%s is not supported yet: %s", name, family->layers);
    }
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, odd.key),
                     "%s is not supported yet: layer %" PRId64 " is %s", name, odd.layer, odd.kind);
}
