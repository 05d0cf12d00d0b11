/* tokenizer/corpus.c: text files by domain. */
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/file.h"
#include "tokenizer/growable.h"
#include "tokenizer/tokenizer.h"

/* "domain=path": what stands before the first "=" is a domain unless it holds a "/". */
static const char *find_equals(const char *argument)
{
    const char *equals = strchr(argument, '=');
    const char *slash = strchr(argument, '/');
    return equals != NULL && slash != NULL && slash < equals ? NULL : equals;
}

/* The bounds of a path's file name without its last extension; ".name" has no extension. */
static void file_stem(const char *path, const char **start, size_t *bytes)
{
    const char *slash = strrchr(path, '/');
    *start = slash == NULL ? path : slash + 1;
    const char *dot = strrchr(*start, '.');
    *bytes = dot == NULL || dot == *start ? strlen(*start) : (size_t)(dot - *start);
}

static bool has_control(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7F) {
            return true;
        }
    }
    return false;
}

static ssm_status parse_argument(const char *argument, ssm_text_file *file, ssm_error *err)
{
    const char *equals = find_equals(argument);
    const char *path = equals == NULL ? argument : equals + 1;
    const char *domain = argument;
    size_t bytes = equals == NULL ? 0 : (size_t)(equals - argument);
    if (equals == NULL) {
        file_stem(path, &domain, &bytes);
    }
    if (path[0] == '\0' || bytes == 0) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "\"%.200s\" is no text: expected domain=path or a path", argument);
    }
    file->path = strdup(path);
    file->domain = strndup(domain, bytes);
    if (file->path == NULL || file->domain == NULL) {
        return ssm__fail_memory(err, "the name of a text", strlen(argument));
    }
    if (has_control(file->domain)) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the domain of \"%.200s\" has a control character; name it domain=path",
                         argument);
    }
    const size_t length = strlen(file->domain);
    if (ssm__utf8_valid((const unsigned char *)file->domain, length) != length) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "the domain of \"%.200s\" is not UTF-8; name it domain=path", argument);
    }
    return SSM_STATUS_OK;
}

static ssm_status find_domain(ssm_corpus *corpus, const char *name, ssm_domain **out,
                              ssm_error *err)
{
    for (int64_t i = 0; i < corpus->n_domains; i++) {
        if (strcmp(corpus->domains[i].name, name) == 0) {
            *out = &corpus->domains[i];
            return SSM_STATUS_OK;
        }
    }
    ssm_domain *domain = &corpus->domains[corpus->n_domains];
    domain->name = strdup(name);
    if (domain->name == NULL) {
        return ssm__fail_memory(err, "the name of a domain", strlen(name));
    }
    corpus->n_domains++;
    *out = domain;
    return SSM_STATUS_OK;
}

/* Bytes as ids. */
static ssm_status add_bytes(const ssm__map *map, ssm_ids *ids, ssm_error *err)
{
    SSM__TRY(ssm__ids_reserve(ids, (int64_t)map->size, err));
    for (size_t i = 0; i < map->size; i++) {
        ids->data[ids->count++] = map->data[i];
    }
    return SSM_STATUS_OK;
}

static ssm_status add_file(const ssm_tokenizer *tokenizer, const char *argument,
                           ssm_invalid_utf8 invalid_utf8, ssm_corpus *corpus, ssm_error *err)
{
    ssm_text_file *file = &corpus->files[corpus->n_files++];
    SSM__TRY(parse_argument(argument, file, err));
    ssm_domain *domain = NULL;
    SSM__TRY(find_domain(corpus, file->domain, &domain, err));
    ssm__map map;
    SSM__TRY(ssm__map_open(file->path, &map, err));
    ssm_encode_options options = {.invalid_utf8 = invalid_utf8};
    ssm__losses losses = {0};
    int64_t before = domain->ids.count;
    const char *text = map.data == NULL ? "" : (const char *)map.data;
    ssm_status status = tokenizer == NULL
                            ? add_bytes(&map, &domain->ids, err)
                            : ssm__tokenizer_encode(tokenizer, text, map.size, &options, file->path,
                                                    &domain->ids, &losses, err);
    corpus->replaced += losses.replaced;
    corpus->dropped += losses.dropped;
    ssm__digest_bytes(text, map.size, file->digest);
    ssm__map_close(&map);
    file->tokens = domain->ids.count - before;
    return status;
}

ssm_status ssm_corpus_open(const ssm_tokenizer *tokenizer, const char *const *arguments,
                           int64_t count, ssm_invalid_utf8 invalid_utf8, ssm_corpus *out,
                           ssm_error *err)
{
    *out = (ssm_corpus){0};
    if (count < 1) {
        return ssm__fail(err, SSM_STATUS_USAGE, SSM__NOWHERE,
                         "no text given: expected domain=path or a path");
    }
    out->files = calloc((size_t)count, sizeof *out->files);
    out->domains = calloc((size_t)count, sizeof *out->domains);
    ssm_status status = SSM_STATUS_OK;
    if (out->files == NULL || out->domains == NULL) {
        status = ssm__fail_memory(err, "the list of texts", (size_t)count * sizeof *out->files);
    }
    for (int64_t i = 0; i < count && status == SSM_STATUS_OK; i++) {
        status = add_file(tokenizer, arguments[i], invalid_utf8, out, err);
    }
    if (status != SSM_STATUS_OK) {
        ssm_corpus_free(out);
    }
    return status;
}

void ssm_corpus_free(ssm_corpus *corpus)
{
    if (corpus == NULL) {
        return;
    }
    for (int64_t i = 0; i < corpus->n_files; i++) {
        free(corpus->files[i].domain);
        free(corpus->files[i].path);
    }
    for (int64_t i = 0; i < corpus->n_domains; i++) {
        free(corpus->domains[i].name);
        ssm_ids_free(&corpus->domains[i].ids);
    }
    free(corpus->files);
    free(corpus->domains);
    *corpus = (ssm_corpus){0};
}
