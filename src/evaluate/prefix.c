/* evaluate/prefix.c: the token that stands where there is no context. */
#include <ssmscope/tasks.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

enum { CONFIG_LIMIT = 16 << 20 };

/* "bos_token": "<s>", or {"content": "<s>", …}. −1: none, or not in the vocabulary. */
static int32_t id_of(const ssm_tokenizer *tokenizer, const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value)) {
        value = json_object_get(value, "content");
    }
    const char *token = json_string_value(value);
    return token ? ssm_tokenizer_id(tokenizer, token, strlen(token)) : -1;
}

static ssm_status look_into(const ssm_tokenizer *tokenizer, const char *directory, const char *name,
                            int32_t *id, const char **source, ssm_error *err)
{
    static const char *const keys[] = {"bos_token", "eos_token"};
    if (*id >= 0 || !ssm__holds_file(directory, name)) {
        return SSM_STATUS_OK;
    }
    char *path = ssm__path_join(directory, name);
    if (!path) {
        return ssm__fail_memory(err, "a path", strlen(directory));
    }
    json_t *config = NULL;
    ssm_status status = ssm__json_read(path, CONFIG_LIMIT, SSM__JSON_PYTHON, &config, err);
    for (size_t i = 0; status == SSM_STATUS_OK && *id < 0 && i < 2; i++) {
        *id = id_of(tokenizer, config, keys[i]);
        *source = *id < 0 ? NULL : keys[i];
    }
    json_decref(config);
    free(path);
    return status;
}

ssm_status ssm_prefix_token(const ssm_tokenizer *tokenizer, const char *directory, int32_t *id,
                            const char **source, ssm_error *err)
{
    static const char end_of_text[] = "<|endoftext|>";
    *id = -1;
    *source = NULL;
    SSM__TRY(look_into(tokenizer, directory, "tokenizer_config.json", id, source, err));
    SSM__TRY(look_into(tokenizer, directory, "special_tokens_map.json", id, source, err));
    if (*id < 0) {
        *id = ssm_tokenizer_id(tokenizer, end_of_text, sizeof end_of_text - 1);
        *source = *id < 0 ? NULL : end_of_text;
    }
    return SSM_STATUS_OK;
}
