/* train/settings.h: one table of settings a task. The same table reads key=value and JSON, names
 * the nearest key of a mistyped one, prints the list for people and the settings that hold for a
 * log. */
#ifndef SSM_TRAIN_SETTINGS_H
#define SSM_TRAIN_SETTINGS_H

#include <jansson.h>
#include <ssmscope/train_task.h>

/* What a setting takes, and the type of the field it is written to. */
typedef enum ssm__setting_kind {
    SSM__SETTING_INTEGER,  /* int64_t */
    SSM__SETTING_REAL,     /* double, finite */
    SSM__SETTING_CHOICE,   /* int64_t, the index in `choices` */
    SSM__SETTING_INTEGERS, /* ssm__integers, rising, without repetitions */
    SSM__SETTING_TEXT,     /* char *, NULL when not given */
    SSM__SETTING_TEXTS     /* ssm__texts */
} ssm__setting_kind;

typedef struct ssm__integers {
    int64_t *values;
    int64_t count;
} ssm__integers;

typedef struct ssm__texts {
    char **values;
    int64_t count;
} ssm__texts;

typedef struct ssm__setting {
    const char *key;
    ssm__setting_kind kind;
    size_t into;          /* offset of the field in the task's object */
    const char *fallback; /* value when not given; NULL: 0, an empty list, NULL */
    int64_t min, max;     /* INTEGER, INTEGERS: both included */
    double low, high;     /* REAL: both included */
    const char *choices;  /* CHOICE: "shuffled|random" */
    const char *help;     /* what it is, one sentence without the full stop */
} ssm__setting;

typedef struct ssm__setting_table {
    const char *owner; /* "copy": of whom messages speak */
    const ssm__setting *settings;
    int64_t count;
} ssm__setting_table;

/* Writes the fallbacks into `object`, whose fields are zero. Errors: MEMORY. */
ssm_status ssm__settings_defaults(const ssm__setting_table *table, void *object, ssm_error *err);
/* Sets one key; a list grows by every call after the first. given [count]: which keys were set so
 * far. Errors: USAGE (an unknown key with the nearest, a value with what is allowed, a key that is
 * given twice), MEMORY. */
ssm_status ssm__settings_set(const ssm__setting_table *table, const char *key, const char *value,
                             bool *given, void *object, ssm_error *err);
/* The same by a JSON value: a number, a text, true or false where words are taken, or a list of
 * them, each of which is set; null leaves the setting as it is. Errors: as above; USAGE for an
 * object. */
ssm_status ssm__settings_set_json(const ssm__setting_table *table, const char *key,
                                  const json_t *value, bool *given, void *object, ssm_error *err);
void ssm__settings_free(const ssm__setting_table *table, void *object);
/* New reference to {key: value} of all settings in the order of the table; NULL: out of memory. */
json_t *ssm__settings_json(const ssm__setting_table *table, const void *object);
/* "a whole number in 1 … 26", "shuffled or random", …: what a setting allows. */
void ssm__setting_allowed(const ssm__setting *setting, char out[128]);

/* "a, b, c" of a NULL-terminated list, at most `size` bytes. */
void ssm__list_names(const char *const *names, char *out, size_t size);
/* Errors: USAGE (`what` has a key that is not in the NULL-terminated list, with the nearest). */
ssm_status ssm__check_keys(const json_t *object, const char *what, const char *const *allowed,
                           ssm_error *err);

#endif
