/* evaluate/wikitext.c: documents of a corpus; pages of WikiText and their detokeniser.
 *
 * The harness scores WikiText by pages, and undoes its tokenisation (blanks around punctuation,
 * " @-@ ") before; words and bytes are counted on the page as it stands. The steps and their order
 * are the harness's, oddities with them: "/' 5/" becomes the text "/'[0-9]/". */
#include <ssmscope/tasks.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "evaluate/python_text.h"
#include "tokenizer/growable.h"
#include "tokenizer/unicode.h"

/* ---- the detokeniser ------------------------------------------------------------------------- */

/* Literal replacements in order; those behind the first NULL come after the pairs. */
static const char *const early[][2] = {
    {" @-@ ", "-"}, {" @,@ ", ","}, {" @.@ ", "."}, {" : ", ": "}, {" ; ", "; "},
    {" . ", ". "},  {" ! ", "! "},  {" ? ", "? "},  {" , ", ", "},
};
static const char *const late[][2] = {
    {"= = = =", "===="}, {"= = =", "==="}, {"= =", "=="},  {" \u00B0 ", "\u00B0"},
    {" \n", "\n"},       {"\n ", "\n"},    {" N ", " 1 "}, {" 's", "'s"},
};

static ssm_status replace_all(ssm_text *text, const char *const pairs[][2], size_t count,
                              ssm_error *err)
{
    for (size_t i = 0; i < count; i++) {
        SSM__TRY(ssm__text_replace(text, pairs[i][0], pairs[i][1], err));
    }
    return SSM_STATUS_OK;
}

static ssm_status replace_quoted_digit(ssm_text *text, ssm_error *err)
{
    char from[] = "/' 0/";
    for (int digit = '0'; digit <= '9'; digit++) {
        from[3] = (char)digit;
        if (memmem(text->data, text->bytes, from, sizeof from - 1)) {
            SSM__TRY(ssm__text_replace(text, from, "/'[0-9]/", err));
        }
    }
    return SSM_STATUS_OK;
}

/* Between `open` and the nearest `close` behind it: no white space inside at either end. In place;
 * what was matched is not looked at again. */
static void trim_pairs(ssm_text *text, char open, char close)
{
    char *data = text->data;
    size_t to = 0;
    size_t at = 0;
    while (at < text->bytes) {
        const char *end = data[at] == open && at + 1 < text->bytes
                              ? memchr(data + at + 1, close, text->bytes - at - 1)
                              : NULL;
        if (!end) {
            data[to++] = data[at++];
            continue;
        }
        const size_t next = (size_t)(end - data) + 1;
        size_t from = at + 1;
        size_t bytes = next - 1 - from;
        const size_t before = ssm__space_before(data + from, bytes);
        from += before;
        bytes -= before;
        bytes -= ssm__space_after(data + from, bytes);
        data[to++] = open;
        memmove(data + to, data + from, bytes);
        to += bytes;
        data[to++] = close;
        at = next;
    }
    text->bytes = to;
    data[to] = '\0';
}

static ssm_status detokenize(ssm_text *text, ssm_error *err)
{
    static const char pairs[] = "()[]{}\"\"''";
    SSM__TRY(ssm__text_replace(text, "s '", "s'", err));
    SSM__TRY(replace_quoted_digit(text, err));
    SSM__TRY(replace_all(text, early, sizeof early / sizeof *early, err));
    for (size_t i = 0; pairs[i] != '\0'; i += 2) {
        trim_pairs(text, pairs[i], pairs[i + 1]);
    }
    return replace_all(text, late, sizeof late / sizeof *late, err);
}

ssm_status ssm_wikitext_detokenize(const char *page, size_t bytes, ssm_text *out, ssm_error *err)
{
    if (ssm__utf8_valid((const unsigned char *)page, bytes) != bytes) {
        return ssm__fail(err, SSM_STATUS_FILE, SSM__NOWHERE, "a page of WikiText is not UTF-8");
    }
    ssm_text text = {0};
    ssm_status status = ssm__text_append(&text, page, bytes, err);
    status = status == SSM_STATUS_OK ? detokenize(&text, err) : status;
    status = status == SSM_STATUS_OK ? ssm__text_append(out, text.data, text.bytes, err) : status;
    ssm_text_free(&text);
    return status;
}

/* ---- documents ------------------------------------------------------------------------------- */

typedef struct builder {
    ssm_documents *documents;
    size_t capacity;
    int64_t domain;
    ssm_documents_form form;
} builder;

static ssm_status add_document(builder *b, const char *text, size_t bytes, ssm_error *err)
{
    void *items = b->documents->items;
    SSM__TRY(ssm__grow(&items, &b->capacity, (size_t)b->documents->count + 1, sizeof(ssm_document),
                       "documents", err));
    b->documents->items = items;
    ssm_text copy = {0};
    const ssm_status status = b->form == SSM_DOCUMENTS_WIKITEXT
                                  ? ssm_wikitext_detokenize(text, bytes, &copy, err)
                                  : ssm__text_append(&copy, text, bytes, err);
    if (status != SSM_STATUS_OK) {
        ssm_text_free(&copy);
        return status;
    }
    b->documents->items[b->documents->count++] =
        (ssm_document){.domain = b->domain,
                       .text = copy.data,
                       .text_bytes = copy.bytes,
                       .words = ssm__count_words(text, bytes),
                       .bytes = (int64_t)bytes};
    return SSM_STATUS_OK;
}

/* "= Title =", not "= = Section = =": after "= = =" → "===" and "= =" → "==". */
static ssm_status is_title(const char *line, size_t bytes, bool *out, ssm_error *err)
{
    ssm_text text = {0};
    *out = false;
    if (!memchr(line, '=', bytes)) {
        return SSM_STATUS_OK;
    }
    ssm_status status = ssm__text_append(&text, line, bytes, err);
    status = status == SSM_STATUS_OK ? ssm__text_replace(&text, "= = =", "===", err) : status;
    status = status == SSM_STATUS_OK ? ssm__text_replace(&text, "= =", "==", err) : status;
    if (status == SSM_STATUS_OK) {
        const size_t before = ssm__space_before(text.data, text.bytes);
        const char *start = text.data + before;
        const size_t length = text.bytes - before - ssm__space_after(start, text.bytes - before);
        *out =
            length >= 2 && memcmp(start, "= ", 2) == 0 && memcmp(start + length - 2, " =", 2) == 0;
    }
    ssm_text_free(&text);
    return status;
}

/* A page ends before the newline in front of the next title; the last one always counts. */
static ssm_status add_pages(builder *b, const char *text, size_t bytes, ssm_error *err)
{
    size_t page = 0;
    for (size_t at = 0; at <= bytes;) {
        const char *newline = memchr(text + at, '\n', bytes - at);
        const size_t end = newline ? (size_t)(newline - text) : bytes;
        bool title = false;
        SSM__TRY(is_title(text + at, end - at, &title, err));
        if (title && at > page) {
            const size_t length = at - 1 - page;
            if (ssm__space_before(text + page, length) < length) {
                SSM__TRY(add_document(b, text + page, length, err));
            }
            page = at;
        }
        at = end + 1;
    }
    return add_document(b, text + page, bytes - page, err);
}

static ssm_status add_file(builder *b, const ssm_text_file *file, ssm_error *err)
{
    ssm__map map;
    SSM__TRY(ssm__map_open(file->path, &map, err));
    const char *text = (const char *)map.data;
    ssm_status status;
    if (map.size == 0) {
        status = ssm__fail(err, SSM_STATUS_FILE, SSM__IN_FILE(file->path),
                           "is empty: there is nothing to score");
    } else if (b->form == SSM_DOCUMENTS_WIKITEXT) {
        const size_t valid = ssm__utf8_valid(map.data, map.size);
        status = valid == map.size
                     ? add_pages(b, text, map.size, err)
                     : ssm__fail(err, SSM_STATUS_FILE, SSM__AT(file->path, (int64_t)valid),
                                 "is not UTF-8: WikiText cannot be cut into pages");
    } else {
        status = add_document(b, text, map.size, err);
    }
    ssm__map_close(&map);
    return status;
}

ssm_status ssm_documents_open(const ssm_corpus *corpus, ssm_documents_form form, ssm_documents *out,
                              ssm_error *err)
{
    *out = (ssm_documents){0};
    builder b = {.documents = out, .form = form};
    ssm_status status = SSM_STATUS_OK;
    /* Domain after domain, files in their order. */
    for (b.domain = 0; b.domain < corpus->n_domains; b.domain++) {
        for (int64_t i = 0; i < corpus->n_files && status == SSM_STATUS_OK; i++) {
            if (strcmp(corpus->files[i].domain, corpus->domains[b.domain].name) == 0) {
                status = add_file(&b, &corpus->files[i], err);
            }
        }
    }
    if (status != SSM_STATUS_OK) {
        ssm_documents_free(out);
    }
    return status;
}

void ssm_documents_free(ssm_documents *documents)
{
    for (int64_t i = 0; documents && i < documents->count; i++) {
        free(documents->items[i].text);
    }
    if (documents) {
        free(documents->items);
        *documents = (ssm_documents){0};
    }
}
