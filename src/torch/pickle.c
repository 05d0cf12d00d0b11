#include "torch/pickle.h"

#include <inttypes.h>
#include <string.h>

#include "torch/machine.h"

/* ---- stack and memo -------------------------------------------------------------------------- */

ssm_status ssm__machine_push(ssm__machine *m, ssm__pickle_value *value)
{
    if (!ssm__bump_room(m->site.memory, &m->stack, &m->stack_room, m->height, sizeof *m->stack)) {
        return ssm__pickle_no_memory(&m->site, m->err);
    }
    m->stack[m->height++] = value;
    return SSM_STATUS_OK;
}

ssm_status ssm__machine_push_new(ssm__machine *m, ssm__pickle_kind kind, ssm__pickle_value **out)
{
    SSM__TRY(ssm__pickle_make(&m->site, kind, out, m->err));
    return ssm__machine_push(m, *out);
}

/* Values above the last mark belong to it: nothing may reach below. */
static size_t floor_of(const ssm__machine *m)
{
    return m->n_marks > 0 ? m->marks[m->n_marks - 1] : 0;
}

static ssm_status need(ssm__machine *m, size_t values)
{
    if (m->height - floor_of(m) < values) {
        SSM__REFUSE(m, "an opcode needs %zu values and the stack has %zu: not a whole pickle",
                    values, m->height - floor_of(m));
    }
    return SSM_STATUS_OK;
}

static ssm_status pop(ssm__machine *m, ssm__pickle_value **out)
{
    SSM__TRY(need(m, 1));
    *out = m->stack[--m->height];
    return SSM_STATUS_OK;
}

static ssm_status top(ssm__machine *m, ssm__pickle_value **out)
{
    SSM__TRY(need(m, 1));
    *out = m->stack[m->height - 1];
    return SSM_STATUS_OK;
}

static ssm_status pop_mark(ssm__machine *m, size_t *height)
{
    if (m->n_marks == 0) {
        SSM__REFUSE(m, "an opcode looks for a mark and there is none: not a whole pickle");
    }
    *height = m->marks[--m->n_marks];
    return SSM_STATUS_OK;
}

static ssm_status put(ssm__machine *m, uint64_t index)
{
    /* Indices are handed out one after the other, and each takes two bytes or more of the pickle; a
     * sparse one would only serve to make the memo large. */
    if (index >= m->size) {
        SSM__REFUSE(m,
                    "memo index %" PRIu64 " is higher than the pickle is long: damaged or hostile",
                    index);
    }
    ssm__pickle_value *value = NULL;
    SSM__TRY(top(m, &value));
    while (m->memo_room <= index) {
        if (!ssm__bump_room(m->site.memory, &m->memo, &m->memo_room, m->memo_room,
                            sizeof(ssm__pickle_value *))) {
            return ssm__pickle_no_memory(&m->site, m->err);
        }
    }
    m->memo[index] = value;
    m->memo_size = index >= m->memo_size ? (size_t)index + 1 : m->memo_size;
    return SSM_STATUS_OK;
}

static ssm_status get(ssm__machine *m, uint64_t index)
{
    if (index >= m->memo_size || m->memo[index] == NULL) {
        SSM__REFUSE(m, "memo entry %" PRIu64 " is read before it is written: not a whole pickle",
                    index);
    }
    return ssm__machine_push(m, m->memo[index]);
}

static ssm_status op_mark(ssm__machine *m)
{
    if (!ssm__bump_room(m->site.memory, &m->marks, &m->marks_room, m->n_marks, sizeof *m->marks)) {
        return ssm__pickle_no_memory(&m->site, m->err);
    }
    m->marks[m->n_marks++] = m->height;
    return SSM_STATUS_OK;
}

static ssm_status op_pop(ssm__machine *m)
{
    if (m->n_marks > 0 && m->height == floor_of(m)) { /* POP right after MARK takes the mark */
        m->n_marks--;
        return SSM_STATUS_OK;
    }
    ssm__pickle_value *ignored;
    return pop(m, &ignored);
}

static ssm_status op_pop_mark(ssm__machine *m)
{
    return pop_mark(m, &m->height);
}

static ssm_status op_dup(ssm__machine *m)
{
    ssm__pickle_value *value = NULL;
    SSM__TRY(top(m, &value));
    return ssm__machine_push(m, value);
}

SSM__WITH_NUMBER(static, op_binput, 1, put)
SSM__WITH_NUMBER(static, op_long_binput, 4, put)
SSM__WITH_NUMBER(static, op_binget, 1, get)
SSM__WITH_NUMBER(static, op_long_binget, 4, get)

static ssm_status op_memoize(ssm__machine *m)
{
    return put(m, m->memo_size);
}

/* ---- containers ------------------------------------------------------------------------------ */

/* Adds the values from `first` up and pops them. */
static ssm_status add_from(ssm__machine *m, ssm__pickle_value *list, size_t first)
{
    for (size_t i = first; i < m->height; i++) {
        SSM__TRY(ssm__pickle_add(&m->site, list, m->stack[i], m->err));
    }
    m->height = first;
    return SSM_STATUS_OK;
}

static ssm_status collect(ssm__machine *m, ssm__pickle_kind kind, size_t first)
{
    if (kind == SSM__PICKLE_DICT && (m->height - first) % 2 != 0) {
        SSM__REFUSE(m, "a dict is made with a key without a value");
    }
    ssm__pickle_value *value = NULL;
    SSM__TRY(ssm__pickle_make(&m->site, kind, &value, m->err));
    SSM__TRY(add_from(m, value, first));
    return ssm__machine_push(m, value);
}

static ssm_status collect_mark(ssm__machine *m, ssm__pickle_kind kind)
{
    size_t first = 0;
    SSM__TRY(pop_mark(m, &first));
    return collect(m, kind, first);
}

static ssm_status collect_last(ssm__machine *m, size_t count)
{
    SSM__TRY(need(m, count));
    return collect(m, SSM__PICKLE_TUPLE, m->height - count);
}

static ssm_status collect_none(ssm__machine *m, ssm__pickle_kind kind)
{
    return collect(m, kind, m->height);
}

SSM__WITH_CONSTANT(static, op_empty_tuple, collect_none, SSM__PICKLE_TUPLE)
SSM__WITH_CONSTANT(static, op_empty_list, collect_none, SSM__PICKLE_LIST)
SSM__WITH_CONSTANT(static, op_empty_dict, collect_none, SSM__PICKLE_DICT)
SSM__WITH_CONSTANT(static, op_empty_set, collect_none, SSM__PICKLE_SET)
SSM__WITH_CONSTANT(static, op_tuple, collect_mark, SSM__PICKLE_TUPLE)
SSM__WITH_CONSTANT(static, op_list, collect_mark, SSM__PICKLE_LIST)
SSM__WITH_CONSTANT(static, op_dict, collect_mark, SSM__PICKLE_DICT)
SSM__WITH_CONSTANT(static, op_frozenset, collect_mark, SSM__PICKLE_SET)
SSM__WITH_CONSTANT(static, op_tuple1, collect_last, 1)
SSM__WITH_CONSTANT(static, op_tuple2, collect_last, 2)
SSM__WITH_CONSTANT(static, op_tuple3, collect_last, 3)

/* The values from `first` up go into the container below them. */
static ssm_status fill(ssm__machine *m, ssm__pickle_kind kind, size_t first)
{
    if (first == floor_of(m)) {
        SSM__REFUSE(m, "there is no %s below the items to add",
                    kind == SSM__PICKLE_DICT ? "dict" : "list");
    }
    ssm__pickle_value *list = m->stack[first - 1];
    if (list->kind != kind) {
        SSM__REFUSE(m, "items are added to %s as if it were %s", ssm__pickle_kind_name(list->kind),
                    ssm__pickle_kind_name(kind));
    }
    if (kind == SSM__PICKLE_DICT && (m->height - first) % 2 != 0) {
        SSM__REFUSE(m, "a dict gets a key without a value");
    }
    return add_from(m, list, first);
}

static ssm_status fill_mark(ssm__machine *m, ssm__pickle_kind kind)
{
    size_t first = 0;
    SSM__TRY(pop_mark(m, &first));
    return fill(m, kind, first);
}

SSM__WITH_CONSTANT(static, op_appends, fill_mark, SSM__PICKLE_LIST)
SSM__WITH_CONSTANT(static, op_setitems, fill_mark, SSM__PICKLE_DICT)
SSM__WITH_CONSTANT(static, op_additems, fill_mark, SSM__PICKLE_SET)

static ssm_status op_append(ssm__machine *m)
{
    SSM__TRY(need(m, 2));
    return fill(m, SSM__PICKLE_LIST, m->height - 1);
}

static ssm_status op_setitem(ssm__machine *m)
{
    SSM__TRY(need(m, 3));
    return fill(m, SSM__PICKLE_DICT, m->height - 2);
}

/* ---- globals and calls ----------------------------------------------------------------------- */

/* A line of the pickle as a text that lives as long as the pickle. */
static ssm_status take_line(ssm__machine *m, ssm__pickle_value *out)
{
    const unsigned char *start = m->data + m->next;
    const unsigned char *end = m->next < m->size ? memchr(start, '\n', m->size - m->next) : NULL;
    if (end == NULL) {
        SSM__REFUSE(m, "the name of a global does not end: the file is truncated");
    }
    *out = (ssm__pickle_value){.kind = SSM__PICKLE_TEXT};
    out->as.text.data = (const char *)start;
    out->as.text.bytes = (size_t)(end - start);
    m->next += out->as.text.bytes + 1;
    return SSM_STATUS_OK;
}

static ssm_status op_global(ssm__machine *m)
{
    ssm__pickle_value module, name, *value = NULL;
    SSM__TRY(take_line(m, &module));
    SSM__TRY(take_line(m, &name));
    SSM__TRY(ssm__pickle_find_global(&m->site, &module, &name, &value, m->err));
    return ssm__machine_push(m, value);
}

static ssm_status op_stack_global(ssm__machine *m)
{
    ssm__pickle_value *module = NULL, *name = NULL, *value = NULL;
    SSM__TRY(pop(m, &name));
    SSM__TRY(pop(m, &module));
    if (module->kind != SSM__PICKLE_TEXT || name->kind != SSM__PICKLE_TEXT) {
        SSM__REFUSE(m, "a global is named by %s and %s instead of two strings",
                    ssm__pickle_kind_name(module->kind), ssm__pickle_kind_name(name->kind));
    }
    SSM__TRY(ssm__pickle_find_global(&m->site, module, name, &value, m->err));
    return ssm__machine_push(m, value);
}

static ssm_status op_reduce(ssm__machine *m)
{
    ssm__pickle_value *callable = NULL, *arguments = NULL, *value = NULL;
    SSM__TRY(pop(m, &arguments));
    SSM__TRY(pop(m, &callable));
    SSM__TRY(ssm__pickle_call(&m->site, callable, arguments, &value, m->err));
    return ssm__machine_push(m, value);
}

/* State of an object: of an OrderedDict it is attributes such as _metadata, which say nothing of
 * the tensors. */
static ssm_status op_build(ssm__machine *m)
{
    ssm__pickle_value *state = NULL, *object = NULL;
    SSM__TRY(pop(m, &state));
    SSM__TRY(top(m, &object));
    if (object->kind != SSM__PICKLE_DICT) {
        SSM__REFUSE(m, "opcode BUILD sets attributes of %s; only an OrderedDict may have some",
                    ssm__pickle_kind_name(object->kind));
    }
    return SSM_STATUS_OK;
}

static ssm_status op_binpersid(ssm__machine *m)
{
    ssm__pickle_value *id = NULL, *value = NULL;
    SSM__TRY(pop(m, &id));
    SSM__TRY(ssm__pickle_persistent(&m->site, id, &value, m->err));
    if (!ssm__bump_room(m->site.memory, &m->out->storages, &m->out->storage_room,
                        m->out->storage_count, sizeof *m->out->storages)) {
        return ssm__pickle_no_memory(&m->site, m->err);
    }
    m->out->storages[m->out->storage_count++] = value->as.storage;
    return ssm__machine_push(m, value);
}

/* ---- the machine ----------------------------------------------------------------------------- */

static ssm_status check_protocol(ssm__machine *m, uint64_t protocol)
{
    if (protocol < 2 || protocol > 5) {
        SSM__REFUSE(m, "pickle protocol %" PRIu64 "; torch.save writes 2, and 2 to 5 are known",
                    protocol);
    }
    return SSM_STATUS_OK;
}
SSM__WITH_NUMBER(static, op_proto, 1, check_protocol)

/* A frame is only a hint for buffering. */
static ssm_status check_frame(ssm__machine *m, uint64_t length)
{
    if (length > m->size - m->next) {
        SSM__REFUSE(m, "a frame of %" PRIu64 " bytes, but only %zu follow: truncated or damaged",
                    length, m->size - m->next);
    }
    return SSM_STATUS_OK;
}
SSM__WITH_NUMBER(static, op_frame, 8, check_frame)

static ssm_status op_stop(ssm__machine *m)
{
    if (m->height != 1 || m->n_marks != 0) {
        SSM__REFUSE(
            m, "the pickle ends with %zu values and %zu marks on its stack; expected one value",
            m->height, m->n_marks);
    }
    m->out->value = m->stack[0];
    m->stopped = true;
    return SSM_STATUS_OK;
}

typedef struct opcode {
    const char *name;
    ssm__operation_fn *run; /* NULL: known to Python, refused here */
} opcode;

static const opcode opcodes[256] = {
    ['('] = {"MARK", op_mark},
    ['.'] = {"STOP", op_stop},
    ['0'] = {"POP", op_pop},
    ['1'] = {"POP_MARK", op_pop_mark},
    ['2'] = {"DUP", op_dup},
    ['N'] = {"NONE", ssm__op_none},
    ['J'] = {"BININT", ssm__op_binint},
    ['K'] = {"BININT1", ssm__op_binint1},
    ['M'] = {"BININT2", ssm__op_binint2},
    ['G'] = {"BINFLOAT", ssm__op_binfloat},
    ['T'] = {"BINSTRING", ssm__op_text4},
    ['U'] = {"SHORT_BINSTRING", ssm__op_text1},
    ['X'] = {"BINUNICODE", ssm__op_text4},
    ['B'] = {"BINBYTES", ssm__op_bytes4},
    ['C'] = {"SHORT_BINBYTES", ssm__op_bytes1},
    [')'] = {"EMPTY_TUPLE", op_empty_tuple},
    [']'] = {"EMPTY_LIST", op_empty_list},
    ['}'] = {"EMPTY_DICT", op_empty_dict},
    ['t'] = {"TUPLE", op_tuple},
    ['l'] = {"LIST", op_list},
    ['d'] = {"DICT", op_dict},
    ['a'] = {"APPEND", op_append},
    ['e'] = {"APPENDS", op_appends},
    ['s'] = {"SETITEM", op_setitem},
    ['u'] = {"SETITEMS", op_setitems},
    ['c'] = {"GLOBAL", op_global},
    ['R'] = {"REDUCE", op_reduce},
    ['b'] = {"BUILD", op_build},
    ['Q'] = {"BINPERSID", op_binpersid},
    ['q'] = {"BINPUT", op_binput},
    ['r'] = {"LONG_BINPUT", op_long_binput},
    ['h'] = {"BINGET", op_binget},
    ['j'] = {"LONG_BINGET", op_long_binget},
    [0x80] = {"PROTO", op_proto},
    [0x81] = {"NEWOBJ", NULL},
    [0x82] = {"EXT1", NULL},
    [0x83] = {"EXT2", NULL},
    [0x84] = {"EXT4", NULL},
    [0x85] = {"TUPLE1", op_tuple1},
    [0x86] = {"TUPLE2", op_tuple2},
    [0x87] = {"TUPLE3", op_tuple3},
    [0x88] = {"NEWTRUE", ssm__op_true},
    [0x89] = {"NEWFALSE", ssm__op_false},
    [0x8a] = {"LONG1", ssm__op_long1},
    [0x8b] = {"LONG4", ssm__op_long4},
    [0x8c] = {"SHORT_BINUNICODE", ssm__op_text1},
    [0x8d] = {"BINUNICODE8", ssm__op_text8},
    [0x8e] = {"BINBYTES8", ssm__op_bytes8},
    [0x8f] = {"EMPTY_SET", op_empty_set},
    [0x90] = {"ADDITEMS", op_additems},
    [0x91] = {"FROZENSET", op_frozenset},
    [0x92] = {"NEWOBJ_EX", NULL},
    [0x93] = {"STACK_GLOBAL", op_stack_global},
    [0x94] = {"MEMOIZE", op_memoize},
    [0x95] = {"FRAME", op_frame},
    [0x96] = {"BYTEARRAY8", NULL},
    [0x97] = {"NEXT_BUFFER", NULL},
    [0x98] = {"READONLY_BUFFER", NULL},
    ['F'] = {"FLOAT", NULL},
    ['I'] = {"INT", NULL},
    ['L'] = {"LONG", NULL},
    ['P'] = {"PERSID", NULL},
    ['S'] = {"STRING", NULL},
    ['V'] = {"UNICODE", NULL},
    ['g'] = {"GET", NULL},
    ['p'] = {"PUT", NULL},
    ['i'] = {"INST", NULL},
    ['o'] = {"OBJ", NULL},
};

static ssm_status step(ssm__machine *m)
{
    m->site.at = m->next;
    const unsigned char *code = NULL;
    SSM__TRY(ssm__machine_take(m, 1, &code));
    const opcode *op = &opcodes[*code];
    if (op->name == NULL) {
        SSM__REFUSE(m, "byte 0x%02x is no pickle opcode: damaged, or not a pickle", *code);
    }
    if (op->run == NULL) {
        SSM__REFUSE(m, "opcode %s is not one that torch.save writes for a state dict; refused",
                    op->name);
    }
    return op->run(m);
}

ssm_status ssm__pickle_read(const ssm__pickle_input *input, ssm__bump *memory, ssm__pickle *out,
                            ssm_error *err)
{
    *out = (ssm__pickle){0};
    ssm__machine m = {.site = {.input = input, .memory = memory},
                      .data = input->data,
                      .size = input->size,
                      .out = out,
                      .err = err};
    while (!m.stopped) {
        SSM__TRY(step(&m));
    }
    out->used = m.next;
    return SSM_STATUS_OK;
}
