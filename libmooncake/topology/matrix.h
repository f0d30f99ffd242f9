/* topology/matrix.h - writes which cards are near to which memory: {"cpu:0":[["near"],["others"]],…}
 *
 * Threads: a matrix is one thread's own.
 */
#ifndef MC_TOPOLOGY_MATRIX_H
#define MC_TOPOLOGY_MATRIX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/writer.h"

struct matrix {
    struct writer writer;
    const char *filters; /* names with commas between them, which are left; NULL: all */
    bool some_rows;
    bool some_names; /* in this list */
};

/* `text` may be NULL when size is 0: then matrix_end tells how much it takes. */
void matrix_begin(struct matrix *matrix, const char *filters, char *text, size_t size);

/* A row has two lists of cards: the near ones, then, after matrix_others, the rest. */
void matrix_row(struct matrix *matrix, const char *location);
void matrix_others(struct matrix *matrix);
void matrix_row_end(struct matrix *matrix);

/* Adds a card to the list, unless it is filtered out. */
void matrix_card(struct matrix *matrix, const char *name);

/* The length of the whole. */
size_t matrix_end(struct matrix *matrix);

#endif
