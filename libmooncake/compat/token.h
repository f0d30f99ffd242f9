/* compat/token.h - the handles and ids that the shims give out: numbers with a generation, looked up in one table.
 *
 * An object is in the table from token_publish until token_withdraw, and lives as long as there are references; the
 * table has one while it is there. A number that is stale, of another kind or invented is found out. In a child after
 * fork all numbers of the parent are stale.
 *
 * Threads: any.
 */
#ifndef MC_COMPAT_TOKEN_H
#define MC_COMPAT_TOKEN_H

#include <stdatomic.h>
#include <stdint.h>

enum token_kind { TOKEN_ENGINE = 1, TOKEN_BATCH, TOKEN_STORE };

struct token_object {
    atomic_uint references;
    enum token_kind kind;
    void (*destroy)(struct token_object *object); /* when the last reference goes */
};

/* The caller has the one reference that there is. */
void token_init(struct token_object *object, enum token_kind kind, void (*destroy)(struct token_object *object));

void token_hold(struct token_object *object);
void token_drop(struct token_object *object);

/* The object's number, never 0 nor all ones, whose reference is the table's own; 0 if memory or numbers are short. */
uint64_t token_publish(struct token_object *object);

/* The object of that number, with a reference for the caller; NULL: there is none of the kind. */
struct token_object *token_acquire(uint64_t token, enum token_kind kind);

/* The same, and takes it out of the table, whose reference goes to the caller. Of two that race one gets it. */
struct token_object *token_withdraw(uint64_t token, enum token_kind kind);

#endif
