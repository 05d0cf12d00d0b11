/* base/status.c: the version and the words for each status. */
#include <ssmscope/base.h>

const char *ssm_version(void)
{
    return SSM_VERSION;
}

const char *ssm_status_text(ssm_status status)
{
    switch (status) {
#define STATUS_CASE(name, code, text)                                                              \
    case SSM_STATUS_##name:                                                                        \
        return text;
        SSM_STATUSES(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}
