/* HellaSwag (Zellers et al., 2019): which of four endings goes on. The texts of WikiHow hold
 * bracketed marks, which are taken out. */
#include "evaluate/task.h"

#include <string.h>

#include "evaluate/python_text.h"

/* Removes every "[", the fewest bytes but newlines, and "]". */
static void remove_brackets(ssm_text *text)
{
    size_t to = 0;
    for (size_t at = 0; at < text->bytes;) {
        if (text->data[at] == '[') {
            const size_t inside = strcspn(text->data + at + 1, "]\n");
            if (text->data[at + 1 + inside] == ']') {
                at += inside + 2;
                continue;
            }
        }
        text->data[to++] = text->data[at++];
    }
    text->bytes = to;
    text->data[to] = '\0';
}

/* Strips, then takes the marks out: what is left may begin or end with a blank. */
static ssm_status clean(ssm_text *text, ssm_error *err)
{
    const size_t before = ssm__space_before(text->data, text->bytes);
    text->bytes -= before;
    memmove(text->data, text->data + before, text->bytes);
    text->bytes -= ssm__space_after(text->data, text->bytes);
    text->data[text->bytes] = '\0';
    ssm_status status = ssm__text_replace(text, " [title]", ". ", err);
    if (status == SSM_STATUS_OK) {
        remove_brackets(text);
        status = ssm__text_replace(text, "  ", " ", err);
    }
    return status;
}

static ssm_status fill_context(const ssm__doc *doc, ssm_task_item *item, ssm_error *err)
{
    const char *label = NULL;
    const char *first = NULL;
    const char *second = NULL;
    ssm_text text = {0};
    ssm_status status = ssm__doc_text(doc, "activity_label", &label, err);
    status = status == SSM_STATUS_OK ? ssm__doc_text(doc, "ctx_a", &first, err) : status;
    status = status == SSM_STATUS_OK ? ssm__doc_text(doc, "ctx_b", &second, err) : status;
    if (status == SSM_STATUS_OK) {
        status = ssm__text_join(&text, err, label, ": ", first, " ", NULL);
    }
    status = status == SSM_STATUS_OK ? ssm__text_capitalize(&text, second, err) : status;
    status = status == SSM_STATUS_OK ? clean(&text, err) : status;
    if (status == SSM_STATUS_OK) {
        status = ssm__item_set(item->contexts, text.data, text.bytes, err);
    }
    ssm_text_free(&text);
    return status;
}

static ssm_status fill_ending(const ssm__doc *doc, ssm_task_item *item, int64_t i,
                              const char *ending, ssm_error *err)
{
    ssm_text text = {0};
    ssm_status status = ssm__text_join(&text, err, ending, NULL);
    status = status == SSM_STATUS_OK ? clean(&text, err) : status;
    status = status == SSM_STATUS_OK ? ssm__item_choice(doc, item, i, text.data, err) : status;
    ssm_text_free(&text);
    return status;
}

ssm_status ssm__read_hellaswag(const ssm__doc *doc, ssm_task_item *item, ssm_error *err)
{
    if (ssm__doc_is_general(doc)) {
        return ssm__item_general(doc, item, "", err);
    }
    const json_t *endings = NULL;
    ssm_status status = ssm__doc_array(doc, doc->fields, "endings", &endings, err);
    if (status == SSM_STATUS_OK) {
        status = ssm__item_start(item, (int64_t)json_array_size(endings), false, err);
    }
    status = status == SSM_STATUS_OK ? fill_context(doc, item, err) : status;
    for (int64_t i = 0; i < item->n_choices && status == SSM_STATUS_OK; i++) {
        status =
            fill_ending(doc, item, i, json_string_value(json_array_get(endings, (size_t)i)), err);
    }
    return status == SSM_STATUS_OK
               ? ssm__doc_gold(doc, "label", 0, item->n_choices, &item->gold, err)
               : status;
}
