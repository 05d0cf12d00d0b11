/* tokenizer/metaspace.c: both spellings of Metaspace, prepend_scheme and add_prefix_space. */
#include "tokenizer/metaspace.h"

#include <string.h>

#include "base/error.h"
#include "tokenizer/fields.h"

static ssm_status parse_scheme(const char *path, const char *where, const json_t *spec,
                               ssm__metaspace *out, ssm_error *err)
{
    static const char *const names[] = {"always", "first", "never"};
    out->prepend = SSM__PREPEND_ALWAYS;
    const json_t *value = json_object_get(spec, "prepend_scheme");
    if (value == NULL) {
        return SSM_STATUS_OK;
    }
    const char *name = json_string_value(value);
    for (int i = 0; name != NULL && i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            out->prepend = (ssm__prepend_scheme)i;
            return SSM_STATUS_OK;
        }
    }
    return ssm__fail_field(path, where, err,
                           "Metaspace: prepend_scheme must be always, first or never");
}

ssm_status ssm__metaspace_parse(const char *path, const char *where, const json_t *spec,
                                ssm__metaspace *out, ssm_error *err)
{
    static const char *const known[] = {
        "type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep", NULL};
    SSM__TRY(ssm__fields_known(path, where, spec, known, err));
    SSM__TRY(ssm__field_character(path, where, spec, "replacement", &out->replacement, err));
    SSM__TRY(parse_scheme(path, where, spec, out, err));
    SSM__TRY(ssm__field_bool_or(path, where, spec, "split", true, &out->split, err));
    bool prefix;
    SSM__TRY(ssm__field_bool_or(path, where, spec, "add_prefix_space", true, &prefix, err));
    if (prefix) {
        return SSM_STATUS_OK;
    }
    /* The old spelling alone says never; beside another scheme it is a contradiction. */
    if (json_object_get(spec, "prepend_scheme") != NULL && out->prepend != SSM__PREPEND_NEVER) {
        return ssm__fail_field(path, where, err,
                               "Metaspace: \"add_prefix_space\": false contradicts "
                               "\"prepend_scheme\": \"%s\"",
                               json_string_value(json_object_get(spec, "prepend_scheme")));
    }
    out->prepend = SSM__PREPEND_NEVER;
    return SSM_STATUS_OK;
}
