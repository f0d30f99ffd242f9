/* topology/custom.c - reads a matrix from a file, by libjansson.
 *
 * Owns nothing; a value is its caller's. Any thread.
 *
 * Invariant: a value that was read has been checked as a whole: writing it meets no surprise.
 */
#include "topology/custom.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "os/jansson.h"
#include "topology/sysfs.h"

/* -1 with errno; EFBIG: it is longer. */
static ssize_t read_file(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t length = 0;
    ssize_t got = 1;
    int reason;

    if (fd < 0)
        return -1;
    while (length < size && got != 0) {
        got = read(fd, text + length, size - length);
        if (got < 0 && errno != EINTR)
            break;
        length += got > 0 ? (size_t)got : 0;
        got = got < 0 ? 1 : got;
    }
    reason = got < 0 ? errno : EFBIG;
    (void)close(fd);
    errno = reason;
    return got < 0 || length == size ? -1 : (ssize_t)length;
}

/* NULL, or what is wrong with the list of cards. */
static const char *check_cards(struct json_value *list) {
    if (jansson.unpack_ex(list, NULL, 0, "[]") != 0)
        return "is not a list";
    for (size_t i = 0; i < jansson.array_size(list); i++) {
        const char *name = jansson.string_value(jansson.array_get(list, i));

        if (name == NULL || !topology_is_name(name, strlen(name)))
            return "has what is no name of a device";
    }
    return NULL;
}

static int32_t check(const char *path, struct json_value *value, struct mc_error *error) {
    if (jansson.unpack_ex(value, NULL, 0, "{}") != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "MC_CUSTOM_TOPO_JSON %.100s: no object", path);
    for (void *row = jansson.object_iter(value); row != NULL; row = jansson.object_iter_next(value, row)) {
        const char *location = jansson.object_iter_key(row), *trouble;
        struct json_value *near, *others;

        if (!topology_is_name(location, strlen(location)) && strcmp(location, "*") != 0)
            return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "MC_CUSTOM_TOPO_JSON %.100s: no location \"%.32s\"",
                              path, location);
        if (jansson.unpack_ex(jansson.object_iter_value(row), NULL, 0, "[oo!]", &near, &others) != 0)
            return status_set(error, MC_ERR_INVALID_ARGUMENT, 0,
                              "MC_CUSTOM_TOPO_JSON %.100s: \"%.64s\" has not two lists", path, location);
        trouble = check_cards(near);
        if (trouble == NULL)
            trouble = check_cards(others);
        if (trouble != NULL)
            return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "MC_CUSTOM_TOPO_JSON %.100s: a list of \"%.64s\" %s",
                              path, location, trouble);
    }
    return MC_OK;
}

int32_t custom_read(const char *path, struct json_value **ret_value, struct mc_error *error) {
    const char *unavailable = jansson_unavailable();
    struct json_value *value = NULL;
    int32_t status = MC_OK;
    ssize_t length;
    char *text;

    if (unavailable != NULL)
        return status_set(error, MC_ERR_NOT_SUPPORTED, 0, "MC_CUSTOM_TOPO_JSON can't be checked: %.128s", unavailable);
    text = malloc(CUSTOM_SIZE_MAX + 1);
    if (text == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    length = read_file(path, text, CUSTOM_SIZE_MAX + 1);
    if (length < 0)
        status =
            status_set(error, MC_ERR_INVALID_ARGUMENT, errno, "MC_CUSTOM_TOPO_JSON %.100s: %s", path, strerror(errno));
    else
        value = jansson.loadb(text, (size_t)length, JANSSON_REJECT_DUPLICATES, NULL);
    free(text);
    if (status != MC_OK)
        return status;
    if (value == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "MC_CUSTOM_TOPO_JSON %.100s: no JSON", path);
    status = check(path, value, error);
    if (status != MC_OK)
        jansson.free_root(value);
    else
        *ret_value = value;
    return status;
}

void custom_free(struct json_value *value) {
    if (value != NULL)
        jansson.free_root(value);
}

static void write_cards(struct json_value *list, struct matrix *matrix) {
    for (size_t i = 0; i < jansson.array_size(list); i++)
        matrix_card(matrix, jansson.string_value(jansson.array_get(list, i)));
}

void custom_write(struct json_value *value, struct matrix *matrix) {
    for (void *row = jansson.object_iter(value); row != NULL; row = jansson.object_iter_next(value, row)) {
        matrix_row(matrix, jansson.object_iter_key(row));
        write_cards(jansson.array_get(jansson.object_iter_value(row), 0), matrix);
        matrix_others(matrix);
        write_cards(jansson.array_get(jansson.object_iter_value(row), 1), matrix);
        matrix_row_end(matrix);
    }
}
