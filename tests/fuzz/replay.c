/* tests/fuzz/replay.c: runs a fuzz target without libFuzzer over every file of a corpus, each as it
 * is, cut short and with single bytes changed. The changes are fixed, so a failure comes back. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    CUTS = 64,             /* lengths tried a file */
    FLIPS = 256,           /* bytes changed a file, one at a time */
    MUTANT_BYTES = 1 << 24 /* large seeds get fewer changes: about this much is parsed in all */
};

static long inputs;

/* A copy of exactly `size` bytes, so that a sanitizer sees one byte too far. */
static void try_input(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size > 0 ? size : 1);
    if (exact == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    if (size > 0) {
        memcpy(exact, data, size);
    }
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    inputs++;
}

static void try_changes(uint8_t *data, size_t size)
{
    try_input(data, size);
    if (size == 0) {
        return;
    }
    size_t most = MUTANT_BYTES / size;
    size_t cuts = most / 4 < CUTS ? most / 4 : CUTS;
    size_t flips = most < FLIPS ? most : FLIPS;
    for (size_t i = 0; i < cuts; i++) {
        try_input(data, size * i / cuts);
    }
    uint64_t state = size; /* Knuth's linear congruential generator, MMIX */
    for (size_t i = 0; i < flips; i++) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        size_t at = (size_t)(state >> 33) % size;
        uint8_t before = data[at];
        state = state * 6364136223846793005U + 1442695040888963407U;
        uint8_t change = (uint8_t)(state >> 56);
        data[at] = (uint8_t)(before ^ (change == 0 ? 1 : change));
        try_input(data, size);
        data[at] = before;
    }
}

static void try_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (file == NULL || fstat(fileno(file), &info) != 0) {
        perror(path);
        exit(1);
    }
    size_t size = (size_t)info.st_size;
    uint8_t *data = malloc(size > 0 ? size : 1);
    if (data == NULL || fread(data, 1, size, file) != size) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    fclose(file);
    try_changes(data, size);
    free(data);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int main(int argc, char **argv)
{
    try_input((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        struct dirent **entries = NULL;
        int count = scandir(argv[i], &entries, NULL, by_name);
        if (count < 0) {
            printf("%s: no corpus\n", argv[i]);
        }
        for (int k = 0; k < count; k++) {
            if (entries[k]->d_name[0] != '.') {
                char path[4096];
                snprintf(path, sizeof path, "%s/%s", argv[i], entries[k]->d_name);
                try_file(path);
            }
            free(entries[k]);
        }
        free(entries);
    }
    printf("%ld inputs\n", inputs);
    return 0;
}
