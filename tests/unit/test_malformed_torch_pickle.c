/* Malformed and hostile pickles in a good archive, named by the rule they break; each has its own
 * message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_messages.h"
#include "test_zip.h"
#include "torch/pickle.h"
#include "torch/torch_file.h"

/* Opcodes as text: \200 PROTO, \205 TUPLE1, \206 TUPLE2, \211 NEWFALSE, \212 LONG1. */
#define TEXT_storage "X\7\0\0\0storage"
#define KEY                                                                                        \
    "X\1\0\0\0"                                                                                    \
    "0"
#define CPU                                                                                        \
    "X\3\0\0\0"                                                                                    \
    "cpu"
#define FLOATS                   "ctorch\nFloatStorage\n"
#define STORAGE                  "(" TEXT_storage FLOATS KEY CPU "K\4tQ" /* four floats */
#define REBUILD                  "ctorch._utils\n_rebuild_tensor_v2\n"
#define DICT                     "ccollections\nOrderedDict\n)R"
#define TENSOR_OF(storage, rest) REBUILD "(" storage rest "\211" DICT "tR"
#define TENSOR                   TENSOR_OF(STORAGE, "K\0K\4\205K\1\205")
#define NAME                                                                                       \
    "X\1\0\0\0"                                                                                    \
    "a"
#define HOLDING(value)     "\200\2}" NAME value "s."
#define STRIDED(rest)      HOLDING(TENSOR_OF(STORAGE, rest))
#define STORED(id)         HOLDING(TENSOR_OF(id, "K\0K\4\205K\1\205"))
#define MOST               "\212\10\377\377\377\377\377\377\377\177"
#define WITH(module, name) "\200\2}" NAME "c" module "\n" name "\nNRs."

typedef struct row {
    const char *rule;
    const char *pickle;
    size_t size;
    const char *part; /* of the message */
} row;
#define ROW(rule, pickle, part)                                                                    \
    {                                                                                              \
        rule, pickle, sizeof(pickle) - 1, part                                                     \
    }

static const row rows[] = {
    /* opcodes */
    ROW("protocol 1 has other opcodes", "\200\1N.", "pickle protocol 1;"),
    ROW("protocol 6 is unknown", "\200\6N.", "pickle protocol 6;"),
    ROW("opcodes are known", "\200\2\377.", "byte 0xff is no pickle opcode"),
    ROW("INST builds any class", "\200\2(ios\nsystem\n.", "opcode INST is not one"),
    ROW("OBJ builds any class", "\200\2(No.", "opcode OBJ is not one"),
    ROW("NEWOBJ builds any class", "\200\2N)\201.", "opcode NEWOBJ is not one"),
    ROW("NEWOBJ_EX builds any class", "\200\4N)}\222.", "opcode NEWOBJ_EX is not one"),
    ROW("EXT1 names a registered class", "\200\2\202\1.", "opcode EXT1 is not one"),
    ROW("EXT4 names a registered class", "\200\2\204\1\0\0\0.", "opcode EXT4 is not one"),
    ROW("PERSID is for text pickles", "\200\2Pkey\n.", "opcode PERSID is not one"),
    ROW("INT is for text pickles", "\200\2I1\n.", "opcode INT is not one"),
    ROW("PUT is for text pickles", "\200\2Np0\n.", "opcode PUT is not one"),
    ROW("STRING is for text pickles", "\200\2S'a'\n.", "opcode STRING is not one"),
    ROW("NEXT_BUFFER has data elsewhere", "\200\5\227.", "opcode NEXT_BUFFER is not one"),
    ROW("BYTEARRAY8 is not needed", "\200\5\226\0\0\0\0\0\0\0\0.", "opcode BYTEARRAY8 is not one"),
    /* globals */
    ROW("os.system is refused", WITH("os", "system"), "wants to use os.system"),
    ROW("posix.system is refused", WITH("posix", "system"), "wants to use posix.system"),
    ROW("builtins.eval is refused", WITH("builtins", "eval"), "wants to use builtins.eval"),
    ROW("__builtin__.getattr is refused", WITH("__builtin__", "getattr"),
        "wants to use __builtin__.getattr"),
    ROW("subprocess.Popen is refused", WITH("subprocess", "Popen"), "use subprocess.Popen"),
    ROW("numpy's scalars are refused", WITH("numpy.core.multiarray", "scalar"),
        "use numpy.core.multiarray.scalar"),
    ROW("torch's own loader is refused", WITH("torch.storage", "_load_from_bytes"),
        "use torch.storage._load_from_bytes"),
    ROW("a prefix of a known name is unknown", WITH("torch._utils", "_rebuild_tensor_v"),
        "use torch._utils._rebuild_tensor_v,"),
    ROW("a known name in another module is unknown", WITH("os", "OrderedDict"),
        "use os.OrderedDict"),
    ROW("a dotted name does not reach through", WITH("collections", "OrderedDict.__init__"),
        "use collections.OrderedDict.__init__"),
    ROW("a name that does not print is shown safely", WITH("o\1s", "sys\377tem"),
        "use o?s.sys?tem"),
    ROW("STACK_GLOBAL is checked alike", "\200\4\214\2os\214\6getcwd\223.", "use os.getcwd"),
    ROW("STACK_GLOBAL takes strings", "\200\4K\1K\2\223.", "named by a number and a number"),
    ROW("the name of a global ends", "\200\2cos\nsystem", "the name of a global does not end"),
    ROW("complex tensors are named", WITH("torch", "ComplexFloatStorage"),
        "tensors of torch.ComplexFloatStorage are not supported"),
    ROW("quantised tensors are named", WITH("torch", "QInt8Storage"),
        "tensors of torch.QInt8Storage are not supported"),
    /* calls */
    ROW("only globals are called", "\200\2K\1)R.", "a number is called with a tuple"),
    ROW("a call has a tuple", "\200\2ccollections\nOrderedDict\nNR.",
        "a global is called with None"),
    ROW("a storage class is not called", "\200\2" FLOATS ")R.", "torch.FloatStorage is called"),
    ROW("a dtype is not called", "\200\2ctorch\nfloat32\n)R.", "torch.float32 is called"),
    ROW("torch.Size takes a tuple", "\200\2ctorch\nSize\n)R.", "torch.Size is called without"),
    ROW("a parameter takes a tensor", "\200\2ctorch._utils\n_rebuild_parameter\nN\205R.",
        "_rebuild_parameter is called without a tensor"),
    ROW("OrderedDict takes one argument", "\200\2ccollections\nOrderedDict\n]]\206R.",
        "OrderedDict is made from"),
    ROW("OrderedDict takes a list", "\200\2ccollections\nOrderedDict\nK\1\205R.",
        "OrderedDict is made from a number"),
    ROW("a pair has two", "\200\2ccollections\nOrderedDict\n]]a\205R.",
        "item 0 of an OrderedDict is not a pair"),
    ROW("BUILD is for dicts", "\200\2" TENSOR "}b.", "sets attributes of a tensor"),
    ROW("BUILD is not for lists", "\200\2]}b.", "sets attributes of a list"),
    /* the machine */
    ROW("the pickle is not empty", "", "needs 1 more bytes"),
    ROW("there is a STOP", "\200\2N", "in the middle of an opcode that needs 1 more"),
    ROW("arguments are whole", "\200\2J\1", "needs 3 more bytes"),
    ROW("a string is whole", "\200\2X\5\0\0\0abc.", "a string of 5 bytes, but only 4 follow"),
    ROW("a length of 64 bits does not overflow", "\200\4\215\377\377\377\377\377\377\377\377.",
        "a string of 18446744073709551615 bytes"),
    ROW("a frame is whole", "\200\4\225\377\0\0\0\0\0\0\0N.", "a frame of 255 bytes"),
    ROW("a string is UTF-8", "\200\2X\2\0\0\0a\377.", "not valid UTF-8 at its byte 1"),
    ROW("the memo is written before it is read", "\200\2h\5.", "memo entry 5 is read"),
    ROW("memo indices are dense", "\200\2Nr\377\377\377\377.", "memo index 4294967295 is higher"),
    ROW("the stack is not empty", "\200\2R.", "needs 1 values and the stack has 0"),
    ROW("values below a mark are out of reach", "\200\2NN(\206.",
        "needs 2 values and the stack has 0"),
    ROW("a mark is there", "\200\2t.", "looks for a mark and there is none"),
    ROW("items have a list", "\200\2(Ne.", "no list below the items"),
    ROW("items have a dict", "\200\2(NNu.", "no dict below the items"),
    ROW("a list is appended to", "\200\2}Na.", "items are added to a dict as if it were a list"),
    ROW("a dict is set", "\200\2]NNs.", "items are added to a list as if it were a dict"),
    ROW("a tuple does not grow", "\200\2)(Ne.", "items are added to a tuple as if"),
    ROW("a key has a value", "\200\2}(Nu.", "a dict gets a key without a value"),
    ROW("a new dict's key has a value", "\200\2N(Nd.", "a dict is made with a key without a value"),
    ROW("one value is left", "\200\2NN.", "ends with 2 values and 0 marks"),
    ROW("no mark is left", "\200\2N(.", "ends with 1 values and 1 marks"),
    ROW("nothing follows STOP", "\200\2}.rest", "4 bytes follow the end of the pickle"),
    /* the state dict */
    ROW("the top is a dict", "\200\2N.", "holds None instead of a state dict"),
    ROW("the top is not a list", "\200\2].", "holds a list instead of a state dict"),
    ROW("the top is not one tensor", "\200\2" TENSOR ".", "holds a tensor instead"),
    ROW("the dict holds tensors", "\200\2}" NAME "K\1s.", "its keys are \"a\""),
    ROW("one dict inside holds tensors",
        "\200\2}(X\5\0\0\0model}" NAME TENSOR "sX\6\0\0\0module}" NAME TENSOR "su.",
        "tensors under \"model\" and under \"module\""),
    ROW("wrappers are unwrapped once",
        "\200\2}X\5\0\0\0modelX\5\0\0\0model"
        "}" NAME TENSOR "ss.",
        "items are added to"),
    ROW("a name is a string", "\200\2}K\1" TENSOR "s.", "the name of a tensor is a number"),
    ROW("a name has no NUL", "\200\2}X\3\0\0\0a\0b" TENSOR "s.", "has a NUL character"),
    ROW("names are unique", "\200\2}(" NAME TENSOR NAME TENSOR "u.", "two tensors of this name"),
    /* storages */
    ROW("a persistent id is a tuple", STORED("NQ"), "a persistent id is None of something else"),
    ROW("a persistent id is of a storage", STORED("(X\6\0\0\0moduleNNNNtQ"),
        "a persistent id is a tuple of something else"),
    ROW("a persistent id is whole", STORED("(" TEXT_storage FLOATS "tQ"),
        "of a storage has 2 parts"),
    ROW("a storage has a class", STORED("(" TEXT_storage "N" KEY CPU "K\4tQ"),
        "the type of a storage is None"),
    ROW("a storage's class is one", STORED("(" TEXT_storage REBUILD KEY CPU "K\4tQ"),
        "the type of a storage is a global"),
    ROW("a storage has a key", STORED("(" TEXT_storage FLOATS "K\1" CPU "K\4tQ"),
        "the key of a storage is a number"),
    ROW("a storage has a size", STORED("(" TEXT_storage FLOATS KEY CPU "NtQ"),
        "the size of a storage is not"),
    ROW("a storage's size is not negative",
        STORED("(" TEXT_storage FLOATS KEY CPU "J\377\377\377\377tQ"),
        "the size of a storage is not a whole number of 0 or more"),
    ROW("a storage's bytes fit", STORED("(" TEXT_storage FLOATS KEY CPU MOST "tQ"),
        "a storage of 9223372036854775807 elements has more bytes"),
    ROW("a storage's view is a tuple", STORED("(" TEXT_storage FLOATS KEY CPU "K\4K\1tQ"),
        "the view of a storage is a number"),
    ROW("a storage's view lies within",
        STORED("(" TEXT_storage FLOATS KEY CPU "K\4" NAME "K\3K\2\207tQ"),
        "a view of 2 elements from element 3 of a storage of 4"),
    ROW("a key has one meaning",
        "\200\2}(" NAME TENSOR "X\1\0\0\0"
        "b" TENSOR_OF("(" TEXT_storage "ctorch\nHalfStorage\n" KEY CPU "K\10tQ",
                      "K\0K\4\205K\1\205") "u.",
        "storage \"0\" is 8 × F16 here and 4 × F32"),
    /* tensors */
    ROW("a tensor has its arguments", HOLDING(REBUILD "(" STORAGE "K\0tR"),
        "_rebuild_tensor_v2 with 2 arguments"),
    ROW("a tensor has a storage", HOLDING(TENSOR_OF("N", "K\0K\4\205K\1\205")),
        "stands on None instead of a storage"),
    ROW("an offset is a number", STRIDED("NK\4\205K\1\205"), "the storage offset of a tensor"),
    ROW("a size is a tuple", STRIDED("K\0K\4K\1\205"), "the size of a tensor is a number"),
    ROW("a stride is a tuple", STRIDED("K\0K\4\205K\1"), "the stride of a tensor is a number"),
    ROW("at most 8 dimensions", STRIDED("K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1t)"),
        "the size of a tensor has 9 dimensions"),
    ROW("dimensions are not negative", STRIDED("K\0J\377\377\377\377\205K\1\205"),
        "dimension 0 of the size of a tensor"),
    ROW("dimensions are whole", STRIDED("K\0K\4G\0\0\0\0\0\0\0\0\206K\1K\1\206"),
        "dimension 1 of the size"),
    ROW("truth values are no numbers", STRIDED("K\0K\4K\1\210\207K\1K\1K\1\207"),
        "dimension 2 of the size"),
    ROW("strides are not negative", STRIDED("K\0K\4\205J\377\377\377\377\205"),
        "dimension 0 of the stride"),
    ROW("size and stride agree", STRIDED("K\0K\4\205)"), "has 1 dimensions and 0 strides"),
    ROW("a tensor lies within its storage", STRIDED("K\0K\5\205K\1\205"),
        "size [5] with strides [1] from element 0 reaches beyond its storage of 4"),
    ROW("its offset counts", STRIDED("K\1K\4\205K\1\205"), "from element 1 reaches beyond"),
    ROW("its strides count", STRIDED("K\0K\3\205K\2\205"), "with strides [2] from element 0"),
    ROW("an empty tensor's offset counts", STRIDED("K\5K\0\205K\1\205"),
        "size [0] with strides [1] from element 5"),
    ROW("an offset does not overflow", STRIDED(MOST "K\4\205K\1\205"),
        "from element 9223372036854775807"),
    ROW("strides do not overflow", STRIDED("K\0K\4\205" MOST "\205"),
        "with strides [9223372036854775807] from element 0"),
    ROW("a size does not overflow", STRIDED("K\0" MOST MOST "\206K\0K\0\206"),
        "more bytes than 63 bits can count"),
    ROW("repeating elements has a limit", STRIDED("K\0J\0\0\0\1K\4\206K\0K\1\206"),
        "the tensor repeats the elements of its storage"),
    ROW("_v3 has a dtype",
        HOLDING("ctorch._utils\n_rebuild_tensor_v3\n(" STORAGE "K\0K\4\205K\1\205\211NNtR"),
        "_rebuild_tensor_v3 without a dtype"),
    ROW("an untyped storage has _v3",
        STORED("(" TEXT_storage "ctorch\nUntypedStorage\n" KEY CPU "K\20tQ"),
        "_rebuild_tensor_v2 on an untyped storage"),
};

static const float numbers[4] = {1, 2, 3, 4};

static ssm_status parse(const char *pickle, size_t size, ssm__torch_file **file, ssm_error *err)
{
    const zip_part parts[] = {{.name = "x/data.pkl", .data = pickle, .size = size},
                              {.name = "x/data/0", .data = numbers, .size = sizeof numbers}};
    size_t bytes = 0;
    unsigned char *archive = zip_build(parts, 2, &bytes);
    ssm_error_clear(err);
    ssm_status status = ssm__torch_parse("broken.bin", archive, bytes, file, err);
    if (status == SSM_STATUS_OK) {
        assert_true(ssm__torch_count(*file) == 0 || ssm__torch_at(*file, 0)->data != NULL);
        ssm__torch_close(*file);
    } else {
        assert_null(*file);
    }
    free(archive);
    return status;
}

static void each_rule_has_its_message(void **state)
{
    (void)state;
    message_list *list = calloc(1, sizeof *list);
    assert_non_null(list);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ssm__torch_file *file = NULL;
        ssm_error err;
        ssm_status status = parse(rows[i].pickle, rows[i].size, &file, &err);
        message_expect(list, rows[i].rule, status, SSM_STATUS_FILE, &err, rows[i].part);
    }
    printf("%d malformed pickles\n", list->count);
    free(list);
}

/* The rows above differ from these in one thing each. */
static void their_good_neighbours(void **state)
{
    (void)state;
    static const row good[] = {
        ROW("plain", HOLDING(TENSOR), ""),
        ROW("transposed", STRIDED("K\0K\2K\2\206K\1K\2\206"), ""),
        ROW("repeated a little", STRIDED("K\0K\2K\4\206K\0K\1\206"), ""),
        ROW("overlapping rows", STRIDED("K\0K\3K\2\206K\1K\1\206"), ""),
        ROW("empty, with absurd strides", STRIDED("K\0K\0K\4\206" MOST MOST "\206"), ""),
        ROW("empty, of a huge size", STRIDED("K\0" MOST MOST "K\0\207K\1K\1K\1\207"), ""),
        ROW("at the end", STRIDED("K\4K\0\205K\1\205"), ""),
        ROW("0-dim", STRIDED("K\3))"), ""),
        ROW("a part of a storage",
            HOLDING(TENSOR_OF("(" TEXT_storage FLOATS KEY CPU "K\4" NAME "K\1K\3\207tQ",
                              "K\0K\3\205K\1\205")),
            ""),
        ROW("version 1", HOLDING("ctorch._utils\n_rebuild_tensor\n(" STORAGE "K\0K\4\205K\1\205tR"),
            ""),
        ROW("version 3 of 16 bits",
            HOLDING("ctorch._utils\n_rebuild_tensor_v3\n((" TEXT_storage
                    "ctorch.storage\nUntypedStorage\n" KEY CPU "K\20tQK\0K\10\205K\1\205\211" DICT
                    "ctorch\nuint16\ntR"),
            ""),
        ROW("a parameter", HOLDING("ctorch._utils\n_rebuild_parameter\n(" TENSOR "\211" DICT "tR"),
            ""),
        ROW("an empty dict", "\200\2}.", ""),
        ROW("Python 2's OrderedDict",
            "\200\2ccollections\nOrderedDict\n]]U\1a"
            "a" TENSOR "aa\205R.",
            ""),
        ROW("other values beside",
            "\200\2}(" NAME TENSOR "K\1K\2X\1\0\0\0"
            "b(K\1G\0\0\0\0\0\0\0\0\210Nl\217\224h\0"
            "ctorch\ndevice\nX\3\0\0\0cpu\205Rctorch\nbfloat16\nu.",
            ""),
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ssm__torch_file *file = NULL;
        ssm_error err;
        if (parse(good[i].pickle, good[i].size, &file, &err) != SSM_STATUS_OK) {
            fail_msg("%s: %s", good[i].rule, err.message);
        }
    }
}

#define PLACED(name, rest) "X\1\0\0\0" name TENSOR_OF(STORAGE, rest)
#define TRANSPOSED         "K\0K\2K\2\206K\1K\2\206"
#define REPEATED           "K\0J\0\0\20\0K\4\206K\0K\1\206" /* 2^20 × 4 floats: 16 MiB */

/* Equal views share their copy, which so counts once; the limit is of all copies together. */
static void copies_are_shared_and_limited(void **state)
{
    (void)state;
    static const char same[] = "\200\2}(" PLACED("a", TRANSPOSED) PLACED("b", TRANSPOSED)
        PLACED("c", REPEATED) PLACED("d", REPEATED) "u.";
    static const char two[] =
        "\200\2}(" PLACED("a", REPEATED) PLACED("b", "K\0J\0\0\20\0K\3\206K\0K\1\206") "u.";
    const zip_part parts[] = {{.name = "x/data.pkl", .data = same, .size = sizeof same - 1},
                              {.name = "x/data/0", .data = numbers, .size = sizeof numbers}};
    size_t bytes = 0;
    ssm__torch_file *file = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    unsigned char *archive = zip_build(parts, 2, &bytes);
    /* 16 bytes of storage and 16 MiB: just a and c. */
    assert_int_equal(ssm__torch_parse("same.bin", archive, bytes, &file, &err), SSM_STATUS_OK);
    const float *a = ssm__torch_find(file, "a")->data;
    assert_ptr_equal(a, ssm__torch_find(file, "b")->data);
    assert_ptr_equal(ssm__torch_find(file, "c")->data, ssm__torch_find(file, "d")->data);
    assert_true(a[0] == 1 && a[1] == 3 && a[2] == 2 && a[3] == 4);
    ssm__torch_close(file);
    free(archive);
    assert_int_equal(parse(two, sizeof two - 1, &file, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.message, "would take more than its storages and 16 MiB"));
}

/* Which dict is the state dict, and how keys are shown. */
static void wrappers_and_notes(void **state)
{
    (void)state;
    static const char pickle[] =
        "\200\2}(X\5\0\0\0model}(" NAME TENSOR "X\2\0\0\0n\nNuX\4\0\0\0"
        "loss" TENSOR "K\1NX\75\0\0\0"
        "123456789_123456789_123456789_123456789_123456789_123456789\303\251"
        "Nu.";
    const zip_part parts[] = {{.name = "x/data.pkl", .data = pickle, .size = sizeof pickle - 1},
                              {.name = "x/data/0", .data = numbers, .size = sizeof numbers}};
    size_t bytes = 0;
    ssm__torch_file *file = NULL;
    ssm_error err;
    ssm_error_clear(&err);
    unsigned char *archive = zip_build(parts, 2, &bytes);
    assert_int_equal(ssm__torch_parse("notes.bin", archive, bytes, &file, &err), SSM_STATUS_OK);
    assert_int_equal(ssm__torch_count(file), 1);
    assert_int_equal(ssm__torch_note_count(file), 2);
    assert_string_equal(
        ssm__torch_note(file, 0),
        "the state dict was taken from under \"model\"; of the file's keys (\"model\", \"loss\", a "
        "number, \"123456789_123456789_123456789_123456789_123456789_123456789\") the "
        "others "
        "were ignored");
    assert_string_equal(ssm__torch_note(file, 1),
                        "1 entry of the state dict is no tensor and was ignored: \"n?\"");
    ssm__torch_close(file);
    free(archive);
}

static void errors_say_where(void **state)
{
    (void)state;
    ssm__torch_file *file = NULL;
    ssm_error err;
    static const char evil[] = WITH("posix", "system");
    parse(evil, sizeof evil - 1, &file, &err);
    assert_string_equal(err.file, "broken.bin");
    assert_non_null(strstr(err.message, "(byte 9 of data.pkl)"));
    assert_int_equal(err.offset, 30 + 10 + 9); /* local header, name */
    static const char beyond[] = STRIDED("K\0K\5\205K\1\205");
    parse(beyond, sizeof beyond - 1, &file, &err);
    assert_string_equal(err.tensor, "a");
}

static char *repeat(const char *start, const char *unit, size_t bytes, size_t times,
                    const char *end, size_t *size)
{
    size_t first = strlen(start);
    size_t last = strlen(end);
    *size = first + bytes * times + last;
    char *out = malloc(*size);
    assert_non_null(out);
    memcpy(out, start, first);
    for (size_t i = 0; i < times; i++) {
        memcpy(out + first + i * bytes, unit, bytes);
    }
    memcpy(out + first + bytes * times, end, last);
    return out;
}

/* Deep, wide and self-referring values cost what they are long, and no stack. */
static void bombs(void **state)
{
    (void)state;
    static const struct {
        const char *what, *start, *unit, *end, *part;
        size_t times;
    } cases[] = {
        {"deep lists", "\200\2", "]", "", "the pickle ends in the middle", 500000},
        {"nested tuples", "\200\2N", "\205", ".", "holds a tuple instead", 500000},
        {"a list in itself", "\200\2]q\1", "h\1a", ".", "holds a list instead", 500000},
        {"each list holds the last one twice", "\200\2]q\1", "0(h\1h\1lq\1", ".",
         "holds a list instead", 100000},
        {"marks", "\200\2", "(", ".", "ends with 0 values and 500000 marks", 500000},
        {"objects without end", "\200\2", "N", ".", "more than 256 MiB of objects", 9000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t size = 0;
        char *pickle = repeat(cases[i].start, cases[i].unit, strlen(cases[i].unit), cases[i].times,
                              cases[i].end, &size);
        ssm__torch_file *file = NULL;
        ssm_error err;
        assert_int_equal(parse(pickle, size, &file, &err), SSM_STATUS_FILE);
        if (strstr(err.message, cases[i].part) == NULL) {
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].what, err.message, cases[i].part);
        }
        free(pickle);
    }
}

/* The machine alone takes at most its limit of memory, times what rounding to blocks adds. */
static void memory_limit(void **state)
{
    (void)state;
    size_t size = 0;
    char *pickle = repeat("\200\2", "N", 1, 100000, ".", &size);
    const ssm__pickle_input input = {"limit.pkl", "a pickle", (unsigned char *)pickle, size, 0};
    ssm__bump memory = {.limit = 1 << 20};
    ssm__pickle out;
    ssm_error err;
    ssm_error_clear(&err);
    assert_int_equal(ssm__pickle_read(&input, &memory, &out, &err), SSM_STATUS_FILE);
    assert_non_null(strstr(err.message, "more than 1 MiB of objects"));
    assert_true(memory.taken <= memory.limit);
    ssm__bump_free(&memory);
    free(pickle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_has_its_message),
        cmocka_unit_test(their_good_neighbours),
        cmocka_unit_test(copies_are_shared_and_limited),
        cmocka_unit_test(wrappers_and_notes),
        cmocka_unit_test(errors_say_where),
        cmocka_unit_test(bombs),
        cmocka_unit_test(memory_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
