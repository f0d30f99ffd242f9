/* topology/matrix.c - writes the matrix, and filters its cards.
 *
 * Owns nothing.
 */
#include "topology/matrix.h"

#include <string.h>

void matrix_begin(struct matrix *matrix, const char *filters, char *text, size_t size) {
    *matrix = (struct matrix){.filters = filters};
    writer_init(&matrix->writer, text, size);
    writer_print(&matrix->writer, "{");
}

void matrix_row(struct matrix *matrix, const char *location) {
    writer_print(&matrix->writer, "%s", matrix->some_rows ? "," : "");
    writer_json_string(&matrix->writer, location);
    writer_print(&matrix->writer, ":[[");
    matrix->some_rows = true;
    matrix->some_names = false;
}

void matrix_others(struct matrix *matrix) {
    writer_print(&matrix->writer, "],[");
    matrix->some_names = false;
}

void matrix_row_end(struct matrix *matrix) {
    writer_print(&matrix->writer, "]]");
}

/* Spaces around the names of a filter don't count. */
static bool is_left(const char *filters, const char *name) {
    size_t length = strlen(name);

    for (const char *at = filters; *at != '\0'; at += strspn(at, ", \t")) {
        size_t part = strcspn(at, ", \t");

        if (part == length && strncmp(at, name, length) == 0)
            return true;
        at += part;
    }
    return false;
}

void matrix_card(struct matrix *matrix, const char *name) {
    if (matrix->filters != NULL && !is_left(matrix->filters, name))
        return;
    writer_print(&matrix->writer, "%s", matrix->some_names ? "," : "");
    writer_json_string(&matrix->writer, name);
    matrix->some_names = true;
}

size_t matrix_end(struct matrix *matrix) {
    writer_print(&matrix->writer, "}");
    return matrix->writer.length;
}
