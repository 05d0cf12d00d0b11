/* base/json.c: reading JSON with jansson under our rules.
 *
 * jansson keeps the text of the token that it reads in a buffer that grows, and does not look
 * whether growing worked: when memory is short, a byte of a long string or number would be lost in
 * silence. So the text is read as the second element of an array whose first element is a string at
 * least as long as every token. When that string arrives whole, the buffer has its final size and
 * nothing is lost. */
#include "base/json.h"

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOAD_FLAGS = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY,
    DEPTH_MAX = 2000, /* below the limit of jansson, which says nothing about the place */
};

/* ---- the text before jansson sees it --------------------------------------------------------- */

typedef struct constant {
    const char *bare;
    const char *tagged;
} constant;

static const constant constants[] = {
    {"Infinity", "{\"__float__\":\"Infinity\"}"},
    {"-Infinity", "{\"__float__\":\"-Infinity\"}"},
    {"NaN", "{\"__float__\":\"NaN\"}"},
};
enum { N_CONSTANTS = sizeof constants / sizeof constants[0] };

/* The bytes that end a number or a word of JSON. */
static bool is_delimiter(char c)
{
    switch (c) {
    case ' ':
    case '\t':
    case '\r':
    case '\n':
    case ',':
    case ':':
    case '[':
    case ']':
    case '{':
    case '}':
    case '"':
        return true;
    default:
        return false;
    }
}

/* The constant that stands at text[at] as a whole word, or NULL. */
static const constant *find_constant(const char *text, size_t bytes, size_t at)
{
    if (text[at] != 'I' && text[at] != 'N' && text[at] != '-') {
        return NULL;
    }
    if (at > 0 && !is_delimiter(text[at - 1])) {
        return NULL;
    }
    for (int i = 0; i < N_CONSTANTS; i++) {
        size_t length = strlen(constants[i].bare);
        if (length <= bytes - at && memcmp(text + at, constants[i].bare, length) == 0 &&
            (at + length == bytes || is_delimiter(text[at + length]))) {
            return &constants[i];
        }
    }
    return NULL;
}

/* Bytes of the string that begins with the quote at text[at], both quotes included, or all that is
 * left when it does not end. */
static size_t string_bytes(const char *text, size_t bytes, size_t at)
{
    size_t end = at + 1;
    while (end < bytes && text[end] != '"') {
        end += text[end] == '\\' ? 2 : 1;
    }
    return end < bytes ? end + 1 - at : bytes - at;
}

typedef struct survey {
    size_t longest;  /* upper bound of the bytes of a token */
    size_t expanded; /* bytes of the text with the constants replaced */
    size_t too_deep; /* place of the first bracket beyond DEPTH_MAX, SIZE_MAX where there is none */
} survey;

/* Looks over the tokens outside of strings; python: counts what replacing the constants adds. */
static survey survey_tokens(const char *text, size_t bytes, bool python)
{
    survey found = {
        .longest = strlen(constants[1].tagged), .expanded = bytes, .too_deep = SIZE_MAX};
    size_t depth = 0;
    size_t word = 0; /* where the present run of bytes without a delimiter began */
    for (size_t at = 0; at < bytes;) {
        size_t length = 1;
        if (text[at] == '"') {
            length = string_bytes(text, bytes, at);
            word = at;
        } else if (python) {
            const constant *here = find_constant(text, bytes, at);
            if (here != NULL) {
                length = strlen(here->bare);
                found.expanded += strlen(here->tagged) - length;
            }
        }
        if (length == 1 && is_delimiter(text[at])) {
            word = at + 1;
            depth += text[at] == '[' || text[at] == '{';
            depth -= (text[at] == ']' || text[at] == '}') && depth > 0;
            if (depth > DEPTH_MAX && found.too_deep == SIZE_MAX) {
                found.too_deep = at;
            }
        }
        at += length;
        if (at > word && at - word > found.longest) {
            found.longest = at - word;
        }
    }
    return found;
}

/* Copies the text with tagged constants into out (of survey.expanded bytes). With out NULL, gives
 * the place in the text of byte `position` of that copy. */
static size_t expand(const char *text, size_t bytes, char *out, size_t position)
{
    size_t filled = 0;
    size_t at = 0;
    while (at < bytes && filled <= position) {
        const constant *here = text[at] == '"' ? NULL : find_constant(text, bytes, at);
        size_t taken = here != NULL      ? strlen(here->bare)
                       : text[at] == '"' ? string_bytes(text, bytes, at)
                                         : 1;
        const char *source = here != NULL ? here->tagged : text + at;
        size_t given = here != NULL ? strlen(here->tagged) : taken;
        if (out != NULL) {
            memcpy(out + filled, source, given);
        } else if (position - filled < given) {
            return here != NULL ? at : at + (position - filled);
        }
        filled += given;
        at += taken;
    }
    return at;
}

/* ---- errors ---------------------------------------------------------------------------------- */

typedef struct source {
    const char *path;
    int64_t offset;
    const char *text;
    size_t bytes;
} source;

static ssm_status fail_at(const source *from, size_t position, ssm_error *err, const char *what)
{
    size_t line = 1;
    size_t column = 1;
    for (size_t i = 0; i < position && i < from->bytes; i++) {
        column++;
        if (from->text[i] == '\n') {
            line++;
            column = 1;
        }
    }
    int64_t place = from->offset < 0 ? (int64_t)position : from->offset + (int64_t)position;
    return ssm__fail(err, SSM_STATUS_FILE, SSM__AT(from->path, place),
                     "not valid JSON at line %zu, column %zu: %s", line, column, what);
}

/* True when the eight bytes at text are all ASCII and none is NUL. */
static bool is_plain(const char *text)
{
    uint64_t word;
    memcpy(&word, text, sizeof word);
    const uint64_t high = 0x8080808080808080u, low = 0x0101010101010101u;
    return ((word | (word - low)) & high) == 0;
}

/* UTF-8 without NUL bytes, or an error with the place of the first byte that is wrong. */
static ssm_status check_bytes(const source *from, ssm_error *err)
{
    for (size_t at = 0; at < from->bytes;) {
        if (from->bytes - at >= sizeof(uint64_t) && is_plain(from->text + at)) {
            at += sizeof(uint64_t);
            continue;
        }
        size_t length = ssm__utf8_length(from->text + at, from->bytes - at);
        if (length == 0) {
            return fail_at(from, at, err, "the bytes are not valid UTF-8");
        }
        if (from->text[at] == '\0') {
            return fail_at(from, at, err, "NUL byte");
        }
        at += length;
    }
    return SSM_STATUS_OK;
}

static bool is_memory_error(const json_error_t *error)
{
    /* Where an allocation fails, jansson gives no text, or this code. */
    return error->text[0] == '\0' || json_error_code(error) == json_error_out_of_memory;
}

/* What jansson found, without its talk of flags that the user cannot set. */
static const char *describe(const json_error_t *error)
{
    switch (json_error_code(error)) {
    case json_error_null_character:
        return "the escape \\u0000 is not accepted in a string";
    case json_error_null_byte_in_key:
        return "the escape \\u0000 is not accepted in a key";
    default:
        return error->text;
    }
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* What jansson reads: ["aaa…", text]. */
typedef struct feed {
    size_t padding; /* length of the first string */
    const char *text;
    size_t bytes;
    size_t given; /* bytes of the whole handed out so far */
} feed;

/* Copies what of segment [begin, begin + bytes) lies in the wanted range; text NULL: letters. */
static size_t give_segment(feed *from, size_t begin, const char *text, size_t bytes, char *out,
                           size_t room)
{
    if (from->given < begin || from->given >= begin + bytes) {
        return 0;
    }
    size_t skip = from->given - begin;
    size_t part = bytes - skip < room ? bytes - skip : room;
    if (text == NULL) {
        memset(out, 'a', part);
    } else {
        memcpy(out, text + skip, part);
    }
    from->given += part;
    return part;
}

static size_t give(void *buffer, size_t room, void *context)
{
    feed *from = context;
    char *out = buffer;
    const struct {
        const char *text;
        size_t bytes;
    } segments[] = {
        {"[\"", 2}, {NULL, from->padding}, {"\",", 2}, {from->text, from->bytes}, {"]", 1}};
    size_t begin = 0;
    size_t filled = 0;
    for (size_t i = 0; i < sizeof segments / sizeof segments[0] && filled < room; i++) {
        filled += give_segment(from, begin, segments[i].text, segments[i].bytes, out + filled,
                               room - filled);
        begin += segments[i].bytes;
    }
    return filled;
}

/* The value of the text, or NULL. */
static json_t *load(const char *text, size_t bytes, size_t longest, json_error_t *error)
{
    feed from = {.padding = longest, .text = text, .bytes = bytes};
    json_t *pair = json_load_callback(give, &from, LOAD_FLAGS, error);
    json_t *value = NULL;
    if (pair != NULL && json_array_size(pair) == 2 &&
        json_string_length(json_array_get(pair, 0)) == longest) {
        value = json_incref(json_array_get(pair, 1));
    }
    json_decref(pair);
    return value;
}

/* from: what the caller gave; text: the same with constants tagged, or the very same. */
static ssm_status parse(const source *from, const char *text, size_t bytes, size_t longest,
                        json_t **out, ssm_error *err)
{
    json_error_t error = {0};
    *out = load(text, bytes, longest, &error);
    if (*out != NULL) {
        return SSM_STATUS_OK;
    }
    /* Read it once more without the array around it, for an error that speaks of the text alone. */
    memset(&error, 0, sizeof error);
    json_t *value = json_loadb(text, bytes, LOAD_FLAGS, &error);
    json_decref(value);
    if (value != NULL || is_memory_error(&error)) {
        return ssm__fail(err, SSM_STATUS_MEMORY, SSM__IN_FILE(from->path),
                         "out of memory for %zu bytes of JSON", bytes);
    }
    size_t position = error.position > 0 ? (size_t)error.position : 0;
    if (text != from->text) {
        position = expand(from->text, from->bytes, NULL, position);
    }
    return fail_at(from, position < from->bytes ? position : from->bytes, err, describe(&error));
}

ssm_status ssm__json_parse(const char *path, int64_t offset, const char *text, size_t bytes,
                           ssm__json_mode mode, json_t **out, ssm_error *err)
{
    *out = NULL;
    source from = {.path = path, .offset = offset, .text = text, .bytes = bytes};
    if (bytes == 0) {
        return fail_at(&from, 0, err, "the file is empty");
    }
    SSM__TRY(check_bytes(&from, err));
    survey found = survey_tokens(text, bytes, mode == SSM__JSON_PYTHON);
    if (found.too_deep != SIZE_MAX) {
        return fail_at(&from, found.too_deep, err, "nested too deeply (more than 2000 levels)");
    }
    if (found.expanded == bytes) {
        return parse(&from, text, bytes, found.longest, out, err);
    }
    char *tagged = malloc(found.expanded);
    if (tagged == NULL) {
        return ssm__fail_memory(err, "JSON text", found.expanded);
    }
    expand(text, bytes, tagged, SIZE_MAX);
    ssm_status status = parse(&from, tagged, found.expanded, found.longest, out, err);
    free(tagged);
    return status;
}

ssm_status ssm__json_read(const char *path, size_t limit, ssm__json_mode mode, json_t **out,
                          ssm_error *err)
{
    *out = NULL;
    ssm__map map;
    SSM__TRY(ssm__map_open(path, &map, err));
    ssm_status status;
    if (map.size > limit) {
        status = ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path),
                           "has %zu bytes; expected JSON of at most %zu bytes", map.size, limit);
    } else if (map.size == 0) {
        status =
            ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(path), "is empty; expected a JSON text");
    } else {
        status = ssm__json_parse(path, 0, (const char *)map.data, map.size, mode, out, err);
    }
    ssm__map_close(&map);
    return status;
}

bool ssm__json_number(const json_t *value, double *out)
{
    if (json_is_number(value)) {
        *out = json_number_value(value);
        return true;
    }
    const json_t *tag = json_object_get(value, "__float__");
    if (tag == NULL || json_object_size(value) != 1 || !json_is_string(tag)) {
        return false;
    }
    const char *text = json_string_value(tag);
    if (strcmp(text, "Infinity") == 0) {
        *out = (double)INFINITY;
    } else if (strcmp(text, "-Infinity") == 0) {
        *out = -(double)INFINITY;
    } else if (strcmp(text, "NaN") == 0) {
        *out = (double)NAN;
    } else {
        return false;
    }
    return true;
}

char *ssm__json_print(const json_t *value, size_t flags)
{
    /* Into memory of the size that a first pass tells: then writing cannot fail half-way. */
    size_t bytes = json_dumpb(value, NULL, 0, flags);
    char *text = bytes == 0 ? NULL : malloc(bytes + 1);
    if (text != NULL && json_dumpb(value, text, bytes, flags) != bytes) {
        free(text);
        return NULL;
    }
    if (text != NULL) {
        text[bytes] = '\0';
    }
    return text;
}

ssm_status ssm__json_write(json_t *value, size_t flags, const char *directory, const char *name,
                           ssm_error *err)
{
    char *text = value == NULL ? NULL : ssm__json_print(value, flags);
    char *path = ssm__path_join(directory, name);
    json_decref(value);
    ssm_status status;
    if (text == NULL || path == NULL) {
        status = ssm__fail_memory(err, name, 0);
    } else {
        size_t bytes = strlen(text);
        text[bytes] = '\n'; /* in place of the terminator */
        status = ssm__write_file(path, text, bytes + 1, err);
    }
    free(text);
    free(path);
    return status;
}
