/* store/state_file.c - reads and replaces the master's file of state. Owns nothing; any thread, one at a time a path. */
#include "store/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/log.h"
#include "base/status.h"

#define HEAD "mooncake-master 1"
#define LINE_MAX_BYTES 128

static bool parse_id(const char *text, struct message_id *ret_id) {
    if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32)
        return false;
    for (size_t i = 0; i < 16; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], '\0'};

        ret_id->bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return true;
}

static bool append(struct message_id **members, size_t *count, const struct message_id *id) {
    struct message_id *grown = realloc(*members, (*count + 1) * sizeof(**members));

    if (grown == NULL)
        return false;
    grown[(*count)++] = *id;
    *members = grown;
    return true;
}

/* One line without its newline. */
static int32_t parse_line(const char *line, size_t number, uint64_t *epoch, struct message_id **members,
                          size_t *count) {
    struct message_id id;

    if (number == 1)
        return strcmp(line, HEAD) == 0 ? MC_OK : MC_ERR_INVALID_ARGUMENT;
    if (number == 2)
        return strncmp(line, "epoch ", 6) == 0 && checked_decimal(line + 6, epoch) && *epoch < UINT64_MAX
                   ? MC_OK
                   : MC_ERR_INVALID_ARGUMENT;
    if (strncmp(line, "member ", 7) != 0 || !parse_id(line + 7, &id))
        return MC_ERR_INVALID_ARGUMENT;
    return append(members, count, &id) ? MC_OK : MC_ERR_NO_MEMORY;
}

int32_t state_file_load(const char *path, uint64_t *ret_epoch, struct message_id **ret_members, size_t *ret_count,
                        struct mc_error *error) {
    struct message_id *members = NULL;
    char line[LINE_MAX_BYTES];
    uint64_t epoch = 0;
    size_t count = 0, number = 0;
    int32_t status = MC_OK;
    FILE *file = path != NULL ? fopen(path, "re") : NULL;

    if (file == NULL && path != NULL && errno != ENOENT)
        return status_set(error, MC_ERR_SYSTEM, errno, "%s can't be read: %m", path);
    while (file != NULL && status == MC_OK && fgets(line, sizeof(line), file) != NULL) {
        size_t length = strcspn(line, "\n");

        if (line[length] != '\n') /* cut short by a crash of the machine, or not ours */
            status = MC_ERR_INVALID_ARGUMENT;
        line[length] = '\0';
        if (status == MC_OK)
            status = parse_line(line, ++number, &epoch, &members, &count);
    }
    if (file != NULL && status == MC_OK && number < 2)
        status = MC_ERR_INVALID_ARGUMENT;
    if (file != NULL)
        fclose(file);
    if (status != MC_OK) {
        free(members);
        return status_set(error, status, 0, "%s isn't a file of a master's state (line %zu)", path, number);
    }
    *ret_epoch = epoch;
    *ret_members = members;
    *ret_count = count;
    return MC_OK;
}

static bool write_all(FILE *file, uint64_t epoch, const struct message_id *members, size_t count) {
    fprintf(file, HEAD "\nepoch %" PRIu64 "\n", epoch);
    for (size_t i = 0; i < count; i++) {
        fprintf(file, "member ");
        for (size_t j = 0; j < 16; j++)
            fprintf(file, "%02x", members[i].bytes[j]);
        fprintf(file, "\n");
    }
    return fflush(file) == 0 && ferror(file) == 0 && fsync(fileno(file)) == 0;
}

int32_t state_file_save(const char *path, uint64_t epoch, const struct message_id *members, size_t count) {
    char *beside = NULL;
    FILE *file;
    bool written;

    if (path == NULL)
        return MC_OK;
    if (asprintf(&beside, "%s.new", path) < 0)
        return MC_ERR_NO_MEMORY;
    file = fopen(beside, "we");
    written = file != NULL && write_all(file, epoch, members, count);
    if (file != NULL && fclose(file) != 0)
        written = false;
    if (written)
        written = rename(beside, path) == 0;
    if (!written)
        log_warning("the master's state can't be kept in %s: %s", path, strerror(errno));
    free(beside);
    return written ? MC_OK : MC_ERR_SYSTEM;
}
