/* ARC, easy and challenge (Clark et al., 2018): questions of science with three to five choices,
 * named by letters or digits. */
#include "evaluate/task.h"

#include <string.h>

#include "evaluate/python_text.h"

/* The index of the first label that is the answer key. */
static ssm_status find_gold(const ssm__doc *doc, const json_t *labels, ssm_task_item *item,
                            ssm_error *err)
{
    const char *key = json_string_value(json_object_get(doc->fields, "answerKey"));
    if (!key || *key == '\0') {
        return ssm__doc_fail(doc, err, "the item has no gold: answerKey is %s",
                             key ? "empty, as in the data published without answers"
                                 : "missing or not a string");
    }
    for (size_t i = 0; i < json_array_size(labels); i++) {
        const char *label = json_string_value(json_array_get(labels, i));
        if (label && strcmp(label, key) == 0) {
            item->gold = (int64_t)i;
            return SSM_STATUS_OK;
        }
    }
    return ssm__doc_fail(
        doc, err, "the item has no gold: answerKey \"%.40s\" is not one of choices.label", key);
}

static ssm_status fill(const ssm__doc *doc, ssm_task_item *item, const char *question,
                       const json_t *texts, ssm_error *err)
{
    ssm_text context = {0};
    ssm_status status = ssm__text_join(&context, err, "Question: ", question, "\nAnswer:", NULL);
    if (status == SSM_STATUS_OK) {
        status = ssm__item_set(item->contexts, context.data, context.bytes, err);
    }
    ssm_text_free(&context);
    for (int64_t i = 0; i < item->n_choices && status == SSM_STATUS_OK; i++) {
        status = ssm__item_choice(doc, item, i, json_string_value(json_array_get(texts, (size_t)i)),
                                  err);
    }
    return status;
}

ssm_status ssm__read_arc(const ssm__doc *doc, ssm_task_item *item, ssm_error *err)
{
    if (ssm__doc_is_general(doc)) {
        return ssm__item_general(doc, item, "\nAnswer:", err);
    }
    const char *question = NULL;
    const json_t *texts = NULL;
    const json_t *labels = NULL;
    const json_t *choices = json_object_get(doc->fields, "choices");
    ssm_status status = ssm__doc_text(doc, "question", &question, err);
    status = status == SSM_STATUS_OK ? ssm__doc_array(doc, choices, "text", &texts, err) : status;
    status = status == SSM_STATUS_OK ? ssm__doc_array(doc, choices, "label", &labels, err) : status;
    if (status == SSM_STATUS_OK && json_array_size(texts) != json_array_size(labels)) {
        status = ssm__doc_fail(doc, err, "choices has %zu texts and %zu labels",
                               json_array_size(texts), json_array_size(labels));
    }
    if (status == SSM_STATUS_OK) {
        status = ssm__item_start(item, (int64_t)json_array_size(texts), false, err);
    }
    status = status == SSM_STATUS_OK ? find_gold(doc, labels, item, err) : status;
    return status == SSM_STATUS_OK ? fill(doc, item, question, texts, err) : status;
}
