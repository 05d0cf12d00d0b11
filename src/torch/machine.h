/* torch/machine.h: the state of the unpickler, and the opcodes that only read a value. */
#ifndef SSM_TORCH_MACHINE_H
#define SSM_TORCH_MACHINE_H

#include "base/error.h"
#include "torch/globals.h"

typedef struct ssm__machine {
    ssm__pickle_site site;
    const unsigned char *data;
    size_t size;
    size_t next; /* byte after the opcode and, while it runs, the arguments read so far */
    ssm__pickle_value **stack;
    size_t height, stack_room;
    size_t *marks; /* heights of the stack */
    size_t n_marks, marks_room;
    ssm__pickle_value **memo;
    size_t memo_size, memo_room; /* size: one more than the highest index used */
    ssm__pickle *out;
    bool stopped;
    ssm_error *err;
} ssm__machine;

typedef ssm_status ssm__operation_fn(ssm__machine *m);

#define SSM__REFUSE(m, ...) return ssm__pickle_refuse(&(m)->site, (m)->err, __VA_ARGS__)

/* The next bytes of the pickle. Errors: FILE when it ends before. */
ssm_status ssm__machine_take(ssm__machine *m, size_t bytes, const unsigned char **out);
/* Little-endian. */
ssm_status ssm__machine_number(ssm__machine *m, size_t bytes, uint64_t *out);
/* A length of `width` bytes, then that many bytes. */
ssm_status ssm__machine_counted(ssm__machine *m, size_t width, const unsigned char **out,
                                size_t *bytes);
ssm_status ssm__machine_push(ssm__machine *m, ssm__pickle_value *value);
ssm_status ssm__machine_push_new(ssm__machine *m, ssm__pickle_kind kind, ssm__pickle_value **out);

/* An opcode that is `call` with a number from the pickle, or with a constant. */
#define SSM__WITH_NUMBER(scope, name, bytes, call)                                                 \
    scope ssm_status name(ssm__machine *m)                                                         \
    {                                                                                              \
        uint64_t number = 0;                                                                       \
        SSM__TRY(ssm__machine_number(m, bytes, &number));                                          \
        return call(m, number);                                                                    \
    }
#define SSM__WITH_CONSTANT(scope, name, call, constant)                                            \
    scope ssm_status name(ssm__machine *m)                                                         \
    {                                                                                              \
        return call(m, constant);                                                                  \
    }

/* Numbers, strings and constants: values.c. */
ssm__operation_fn ssm__op_none;
ssm__operation_fn ssm__op_true;
ssm__operation_fn ssm__op_false;
ssm__operation_fn ssm__op_long1;
ssm__operation_fn ssm__op_long4;
ssm__operation_fn ssm__op_binfloat;
ssm__operation_fn ssm__op_binint1;
ssm__operation_fn ssm__op_binint2;
ssm__operation_fn ssm__op_binint;
ssm__operation_fn ssm__op_text1;
ssm__operation_fn ssm__op_text4;
ssm__operation_fn ssm__op_text8;
ssm__operation_fn ssm__op_bytes1;
ssm__operation_fn ssm__op_bytes4;
ssm__operation_fn ssm__op_bytes8;

#endif
