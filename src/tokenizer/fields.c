/* tokenizer/fields.c: strict field access with messages that name the component. */
#include "tokenizer/fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/unicode.h"

ssm_status ssm__fail_field(const char *path, const char *where, ssm_error *err, const char *format,
                           ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return ssm__fail(err, SSM_STATUS_FILE, SSM__TENSOR(path, where), "%s %s", where, message);
}

ssm_status ssm__fail_unsupported(const char *path, const char *where, const char *type,
                                 ssm_error *err)
{
    return ssm__fail_field(path, where, err, "%.100s is not supported yet", type);
}

ssm_status ssm__field_type(const char *path, const char *where, const json_t *spec,
                           const char **type, ssm_error *err)
{
    if (!json_is_object(spec)) {
        return ssm__fail_field(path, where, err, "must be an object with a \"type\"");
    }
    *type = json_string_value(json_object_get(spec, "type"));
    if (*type == NULL) {
        return ssm__fail_field(path, where, err, "has no string \"type\"");
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__fields_known(const char *path, const char *where, const json_t *spec,
                             const char *const *known, ssm_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)spec, key, value)
    {
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], key) != 0) {
            i++;
        }
        if (known[i] == NULL) {
            return ssm__fail_field(path, where, err, "has the unknown field \"%.100s\"", key);
        }
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__fields_none(const char *path, const char *where, const json_t *spec, ssm_error *err)
{
    static const char *const known[] = {"type", NULL};
    return ssm__fields_known(path, where, spec, known, err);
}

ssm_status ssm__field_character(const char *path, const char *where, const json_t *spec,
                                const char *name, uint32_t *out, ssm_error *err)
{
    const json_t *value = json_object_get(spec, name);
    const unsigned char *text = (const unsigned char *)json_string_value(value);
    size_t bytes = json_string_length(value);
    if (text == NULL || bytes == 0 || ssm__utf8_read(text, out) != bytes) {
        return ssm__fail_field(path, where, err, "needs \"%s\": a string of one character", name);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__field_bool(const char *path, const char *where, const json_t *spec,
                           const char *name, bool *out, ssm_error *err)
{
    const json_t *value = json_object_get(spec, name);
    if (!json_is_boolean(value)) {
        return ssm__fail_field(path, where, err, "needs \"%s\": true or false", name);
    }
    *out = json_is_true(value);
    return SSM_STATUS_OK;
}

ssm_status ssm__field_bool_or(const char *path, const char *where, const json_t *spec,
                              const char *name, bool missing, bool *out, ssm_error *err)
{
    const json_t *value = json_object_get(spec, name);
    if (value == NULL || json_is_null(value)) {
        *out = missing;
        return SSM_STATUS_OK;
    }
    return ssm__field_bool(path, where, spec, name, out, err);
}

ssm_status ssm__field_string(const char *path, const char *where, const json_t *spec,
                             const char *name, const json_t **out, ssm_error *err)
{
    *out = json_object_get(spec, name);
    if (!json_is_string(*out)) {
        return ssm__fail_field(path, where, err, "needs a string \"%s\"", name);
    }
    return SSM_STATUS_OK;
}

ssm_status ssm__field_stages(const char *path, const char *where, const json_t *spec,
                             const char *name, int depth, const json_t **out, ssm_error *err)
{
    const char *const known[] = {"type", name, NULL};
    SSM__TRY(ssm__fields_known(path, where, spec, known, err));
    *out = json_object_get(spec, name);
    if (!json_is_array(*out)) {
        return ssm__fail_field(path, where, err, "Sequence needs a list \"%s\"", name);
    }
    if (depth >= SSM__SEQUENCE_DEPTH) {
        return ssm__fail_field(path, where, err, "has Sequences more than %d deep",
                               SSM__SEQUENCE_DEPTH);
    }
    return SSM_STATUS_OK;
}
