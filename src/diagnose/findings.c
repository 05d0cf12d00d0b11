/* diagnose/findings.c: the list that examinations append to. */
#include <ssmscope/examine.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

const char *ssm_finding_kind_name(ssm_finding_kind kind)
{
    static const char *const names[] = {"ok", "note", "problem"};
    return (unsigned)kind < sizeof names / sizeof names[0] ? names[kind] : NULL;
}

ssm_status ssm_findings_add(ssm_findings *findings, ssm_finding_kind kind, const char *topic,
                            const char *tensor, ssm_error *err, const char *format, ...)
{
    if (findings->count == findings->capacity) {
        const int64_t capacity = findings->capacity == 0 ? 16 : 2 * findings->capacity;
        ssm_finding *items = realloc(findings->items, (size_t)capacity * sizeof *items);
        if (items == NULL) {
            return ssm__fail_memory(err, "the findings", (size_t)capacity * sizeof *items);
        }
        findings->items = items;
        findings->capacity = capacity;
    }
    ssm_finding *item = &findings->items[findings->count];
    *item = (ssm_finding){.kind = kind, .topic = topic};
    if (tensor != NULL) {
        snprintf(item->tensor, sizeof item->tensor, "%s", tensor);
    }
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    item->text = length < 0 ? NULL : malloc((size_t)length + 1);
    if (item->text == NULL) {
        va_end(again);
        return ssm__fail_memory(err, "a finding", (size_t)(length < 0 ? 0 : length) + 1);
    }
    vsnprintf(item->text, (size_t)length + 1, format, again);
    va_end(again);
    findings->count++;
    return SSM_STATUS_OK;
}

int64_t ssm_findings_of(const ssm_findings *findings, ssm_finding_kind kind)
{
    int64_t count = 0;
    for (int64_t i = 0; i < findings->count; i++) {
        count += findings->items[i].kind == kind;
    }
    return count;
}

void ssm_findings_free(ssm_findings *findings)
{
    for (int64_t i = 0; i < findings->count; i++) {
        free(findings->items[i].text);
    }
    free(findings->items);
    *findings = (ssm_findings){0};
}
