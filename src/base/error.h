/* base/error.h: filling the error record. Every function returns the status it was given, so that
 * `return ssm__fail(err, …)` is the whole error path. */
#ifndef SSM_BASE_ERROR_H
#define SSM_BASE_ERROR_H

#include <ssmscope/base.h>

/* Where something went wrong; missing parts are NULL and −1 (use the macros below). */
typedef struct ssm__place {
    const char *file;
    const char *tensor;
    int64_t offset;
} ssm__place;

#define SSM__NOWHERE            ((ssm__place){NULL, NULL, -1})
#define SSM__IN_FILE(path)      ((ssm__place){(path), NULL, -1})
#define SSM__AT(path, byte)     ((ssm__place){(path), NULL, (byte)})
#define SSM__TENSOR(path, name) ((ssm__place){(path), (name), -1})

/* Long places keep their end (the file name), long messages their beginning; all stay valid UTF-8.
 */
ssm_status ssm__fail(ssm_error *err, ssm_status status, ssm__place place, const char *format, ...)
    SSM_PRINTF(4, 5);
ssm_status ssm__fail_memory(ssm_error *err, const char *what, size_t bytes);
/* FILE for a missing or unreadable path, FAILED for writing trouble; appends strerror(errno_value).
 */
ssm_status ssm__fail_errno(ssm_error *err, ssm_status status, const char *path, const char *doing,
                           int errno_value);

/* Forwards a failure. */
#define SSM__TRY(call)                                                                             \
    do {                                                                                           \
        ssm_status ssm__status_ = (call);                                                          \
        if (ssm__status_ != SSM_STATUS_OK) {                                                       \
            return ssm__status_;                                                                   \
        }                                                                                          \
    } while (0)

#endif
