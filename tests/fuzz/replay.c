/* replay.c - feeds a fuzz target each file of the directory that it is given, and reports by TAP. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

static int is_file(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

/* The target gets a block of exactly the file's size, so that the address sanitizer sees every byte that is read too much. */
static int replay(const char *directory, const char *name) {
    char path[4096];
    FILE *file;
    uint8_t *data = NULL;
    long size;
    int result = -1;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "rb");
    if (file == NULL)
        return -1;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0) {
        data = malloc(size > 0 ? (size_t)size : 1);
        if (data != NULL && fread(data, 1, (size_t)size, file) == (size_t)size)
            result = LLVMFuzzerTestOneInput(data, (size_t)size);
    }
    free(data);
    fclose(file);
    return result;
}

int main(int argc, char **argv) {
    struct dirent **entries;
    int count = argc == 2 ? scandir(argv[1], &entries, is_file, alphasort) : -1;
    int failed = 0;

    if (count <= 0) {
        fprintf(stderr, "usage: %s DIRECTORY, with files in it\n", argv[0]);
        return 2;
    }
    printf("1..%d\n", count);
    for (int i = 0; i < count; i++) {
        int result = replay(argv[1], entries[i]->d_name);

        printf("%s %d - %s\n", result == 0 ? "ok" : "not ok", i + 1, entries[i]->d_name);
        fflush(stdout); /* the next one may crash */
        failed += result != 0;
        free(entries[i]);
    }
    free(entries);
    return failed != 0;
}
