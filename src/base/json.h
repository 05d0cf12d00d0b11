/* base/json.h: reading JSON with jansson under our rules: UTF-8, no duplicate keys, depth and size
 * limits, and the bare Infinity, -Infinity and NaN that Python writes.
 *
 * The escape \u0000 is refused in keys and in strings: every name is a C string afterwards, and one
 * that ends early would be taken for another. */
#ifndef SSM_BASE_JSON_H
#define SSM_BASE_JSON_H

#include <jansson.h>
#include <ssmscope/base.h>

typedef enum ssm__json_mode {
    SSM__JSON_STRICT,
    SSM__JSON_PYTHON /* bare Infinity/NaN become {"__float__": "Infinity"} */
} ssm__json_mode;

/* text: `bytes` bytes that begin at `offset` of `path` (for the error's place only). Any value may
 * be at the top; nesting goes to 2000 levels. *out: a new reference, NULL on failure. Errors: FILE
 * (the message has line, column and what was found; the offset is where reading stopped), MEMORY.
 */
ssm_status ssm__json_parse(const char *path, int64_t offset, const char *text, size_t bytes,
                           ssm__json_mode mode, json_t **out, ssm_error *err);
/* Reads and parses a whole file of at most `limit` bytes. Errors: as above and of ssm__map_open;
 * FILE for a longer or an empty file. */
ssm_status ssm__json_read(const char *path, size_t limit, ssm__json_mode mode, json_t **out,
                          ssm_error *err);
/* Number, or {"__float__": "Infinity" | "-Infinity" | "NaN"}. False: neither. */
bool ssm__json_number(const json_t *value, double *out);

/* The text of a value, for free(); NULL: out of memory. As json_dumps, which must not be used: it
 * forgets to look whether writing a key worked, and gives a text without it. flags: jansson's. */
char *ssm__json_print(const json_t *value, size_t flags);
/* Writes directory/name, atomically, with a newline at its end. Takes the reference; NULL stands
 * for a value that there was no memory for. Errors: FAILED, MEMORY. */
ssm_status ssm__json_write(json_t *value, size_t flags, const char *directory, const char *name,
                           ssm_error *err);

#endif
