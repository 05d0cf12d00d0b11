/* tokenizer/fields.h: reading the fields of tokenizer.json strictly.
 *
 * `where` is the component as messages name it ("pre_tokenizer", "model"). A field that is not
 * known is refused, because a field that is passed over can change every id. */
#ifndef SSM_TOKENIZER_FIELDS_H
#define SSM_TOKENIZER_FIELDS_H

#include <jansson.h>
#include <ssmscope/base.h>

enum { SSM__SEQUENCE_DEPTH = 8 }; /* Sequences inside Sequences */

/* "<where> <type> is not supported yet". */
ssm_status ssm__fail_unsupported(const char *path, const char *where, const char *type,
                                 ssm_error *err);
/* A FILE error whose field is `where`. */
ssm_status ssm__fail_field(const char *path, const char *where, ssm_error *err, const char *format,
                           ...) SSM_PRINTF(4, 5);

/* spec is an object with a string field "type". */
ssm_status ssm__field_type(const char *path, const char *where, const json_t *spec,
                           const char **type, ssm_error *err);
/* Every key of spec is in the NULL-terminated list. */
ssm_status ssm__fields_known(const char *path, const char *where, const json_t *spec,
                             const char *const *known, ssm_error *err);
/* spec has no field but "type". */
ssm_status ssm__fields_none(const char *path, const char *where, const json_t *spec,
                            ssm_error *err);
/* A required string of one character. */
ssm_status ssm__field_character(const char *path, const char *where, const json_t *spec,
                                const char *name, uint32_t *out, ssm_error *err);
/* A required boolean. */
ssm_status ssm__field_bool(const char *path, const char *where, const json_t *spec,
                           const char *name, bool *out, ssm_error *err);
/* A boolean with a default for a missing or null field. */
ssm_status ssm__field_bool_or(const char *path, const char *where, const json_t *spec,
                              const char *name, bool missing, bool *out, ssm_error *err);
/* A required string. */
ssm_status ssm__field_string(const char *path, const char *where, const json_t *spec,
                             const char *name, const json_t **out, ssm_error *err);
/* The array of a Sequence, which has no other field; depth counts the Sequences around it. */
ssm_status ssm__field_stages(const char *path, const char *where, const json_t *spec,
                             const char *name, int depth, const json_t **out, ssm_error *err);

#endif
