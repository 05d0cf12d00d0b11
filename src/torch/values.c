/* Opcodes that read a number, a string or a constant, and how arguments are read. */
#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"
#include "torch/machine.h"

/* ---- arguments ------------------------------------------------------------------------------- */

ssm_status ssm__machine_take(ssm__machine *m, size_t bytes, const unsigned char **out)
{
    if (bytes > m->size - m->next) {
        SSM__REFUSE(
            m,
            "the pickle ends in the middle of an opcode that needs %zu more bytes: the file "
            "is truncated",
            bytes - (m->size - m->next));
    }
    *out = m->data + m->next;
    m->next += bytes;
    return SSM_STATUS_OK;
}

ssm_status ssm__machine_number(ssm__machine *m, size_t bytes, uint64_t *out)
{
    const unsigned char *digits = NULL;
    SSM__TRY(ssm__machine_take(m, bytes, &digits));
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) {
        value = value << 8 | digits[i];
    }
    *out = value;
    return SSM_STATUS_OK;
}

ssm_status ssm__machine_counted(ssm__machine *m, size_t width, const unsigned char **out,
                                size_t *bytes)
{
    uint64_t length = 0;
    SSM__TRY(ssm__machine_number(m, width, &length));
    if (length > m->size - m->next) {
        SSM__REFUSE(m, "a string of %" PRIu64 " bytes, but only %zu follow: truncated or damaged",
                    length, m->size - m->next);
    }
    *bytes = (size_t)length;
    return ssm__machine_take(m, *bytes, out);
}

/* ---- plain values ---------------------------------------------------------------------------- */

static ssm_status push_integer(ssm__machine *m, ssm__pickle_kind kind, int64_t integer)
{
    ssm__pickle_value *value = NULL;
    SSM__TRY(ssm__machine_push_new(m, kind, &value));
    value->as.integer = integer;
    return SSM_STATUS_OK;
}

ssm_status ssm__op_none(ssm__machine *m)
{
    return push_integer(m, SSM__PICKLE_NONE, 0);
}

ssm_status ssm__op_true(ssm__machine *m)
{
    return push_integer(m, SSM__PICKLE_BOOL, 1);
}

ssm_status ssm__op_false(ssm__machine *m)
{
    return push_integer(m, SSM__PICKLE_BOOL, 0);
}

static ssm_status push_unsigned(ssm__machine *m, uint64_t number)
{
    return push_integer(m, SSM__PICKLE_INT, (int64_t)number);
}
SSM__WITH_NUMBER(extern, ssm__op_binint1, 1, push_unsigned)
SSM__WITH_NUMBER(extern, ssm__op_binint2, 2, push_unsigned)

static ssm_status push_signed(ssm__machine *m, uint64_t number)
{
    return push_integer(m, SSM__PICKLE_INT, (int32_t)(uint32_t)number);
}
SSM__WITH_NUMBER(extern, ssm__op_binint, 4, push_signed)

static ssm_status push_string(ssm__machine *m, ssm__pickle_kind kind, const unsigned char *data,
                              size_t bytes)
{
    ssm__pickle_value *value = NULL;
    SSM__TRY(ssm__machine_push_new(m, kind, &value));
    value->as.text.data = (const char *)data;
    value->as.text.bytes = bytes;
    return SSM_STATUS_OK;
}

/* Two's complement, little-endian. */
static ssm_status push_long(ssm__machine *m, size_t width)
{
    const unsigned char *digits = NULL;
    size_t bytes = 0;
    SSM__TRY(ssm__machine_counted(m, width, &digits, &bytes));
    if (bytes > 8) {
        return push_string(m, SSM__PICKLE_BIG_INT, digits, bytes);
    }
    uint64_t number = bytes > 0 && digits[bytes - 1] >= 0x80 ? UINT64_MAX : 0;
    for (size_t i = bytes; i-- > 0;) {
        number = number << 8 | digits[i];
    }
    return push_integer(m, SSM__PICKLE_INT, (int64_t)number);
}

ssm_status ssm__op_long1(ssm__machine *m)
{
    return push_long(m, 1);
}

ssm_status ssm__op_long4(ssm__machine *m)
{
    return push_long(m, 4);
}

ssm_status ssm__op_binfloat(ssm__machine *m)
{
    const unsigned char *digits = NULL;
    ssm__pickle_value *value = NULL;
    SSM__TRY(ssm__machine_take(m, 8, &digits));
    SSM__TRY(ssm__machine_push_new(m, SSM__PICKLE_FLOAT, &value));
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++) { /* the one big-endian thing in a pickle */
        bits = bits << 8 | digits[i];
    }
    memcpy(&value->as.number, &bits, sizeof bits);
    return SSM_STATUS_OK;
}

static ssm_status push_text(ssm__machine *m, size_t width)
{
    const unsigned char *data = NULL;
    size_t bytes = 0;
    SSM__TRY(ssm__machine_counted(m, width, &data, &bytes));
    for (size_t i = 0; i < bytes;) {
        size_t length = ssm__utf8_length((const char *)data + i, bytes - i);
        if (length == 0) {
            SSM__REFUSE(m, "a string is not valid UTF-8 at its byte %zu", i);
        }
        i += length;
    }
    return push_string(m, SSM__PICKLE_TEXT, data, bytes);
}

static ssm_status push_bytes(ssm__machine *m, size_t width)
{
    const unsigned char *data = NULL;
    size_t bytes = 0;
    SSM__TRY(ssm__machine_counted(m, width, &data, &bytes));
    return push_string(m, SSM__PICKLE_BYTES, data, bytes);
}

SSM__WITH_CONSTANT(extern, ssm__op_text1, push_text, 1)
SSM__WITH_CONSTANT(extern, ssm__op_text4, push_text, 4)
SSM__WITH_CONSTANT(extern, ssm__op_text8, push_text, 8)
SSM__WITH_CONSTANT(extern, ssm__op_bytes1, push_bytes, 1)
SSM__WITH_CONSTANT(extern, ssm__op_bytes4, push_bytes, 4)
SSM__WITH_CONSTANT(extern, ssm__op_bytes8, push_bytes, 8)
