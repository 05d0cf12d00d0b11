/* torch/globals.h: the globals a pickle may name, and what calling them means here. */
#ifndef SSM_TORCH_GLOBALS_H
#define SSM_TORCH_GLOBALS_H

#include "torch/pickle.h"

/* What both halves of the unpickler share: where an error is, and memory. */
typedef struct ssm__pickle_site {
    const ssm__pickle_input *input;
    ssm__bump *memory;
    size_t at; /* byte of the opcode that runs */
} ssm__pickle_site;

/* FILE with the place of the running opcode, and ", byte N of data.pkl" behind the message. */
ssm_status ssm__pickle_refuse(const ssm__pickle_site *site, ssm_error *err, const char *format, ...)
    SSM_PRINTF(3, 4);
ssm_status ssm__pickle_no_memory(const ssm__pickle_site *site, ssm_error *err);
ssm_status ssm__pickle_make(const ssm__pickle_site *site, ssm__pickle_kind kind,
                            ssm__pickle_value **out, ssm_error *err);
/* Adds to a LIST, SET or DICT. */
ssm_status ssm__pickle_add(const ssm__pickle_site *site, ssm__pickle_value *list,
                           ssm__pickle_value *item, ssm_error *err);

/* module.name → a GLOBAL. Errors: FILE for every global that is not listed. */
ssm_status ssm__pickle_find_global(const ssm__pickle_site *site, const ssm__pickle_value *module,
                                   const ssm__pickle_value *name, ssm__pickle_value **out,
                                   ssm_error *err);
/* What callable(*arguments) would give. */
ssm_status ssm__pickle_call(const ssm__pickle_site *site, const ssm__pickle_value *callable,
                            const ssm__pickle_value *arguments, ssm__pickle_value **out,
                            ssm_error *err);
/* A persistent id → a STORAGE. */
ssm_status ssm__pickle_persistent(const ssm__pickle_site *site, const ssm__pickle_value *id,
                                  ssm__pickle_value **out, ssm_error *err);

#endif
