/* base/list.h - a doubly linked ring through a member of its elements; the head is a node without an element. */
#ifndef MC_BASE_LIST_H
#define MC_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next;
    struct list *prev;
};

#define list_entry(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

/* The node may be removed inside the loop. */
#define list_each(node, after, head) \
    for ((node) = (head)->next, (after) = (node)->next; (node) != (head); (node) = (after), (after) = (node)->next)

static inline void list_init(struct list *node) {
    node->next = node->prev = node;
}

static inline bool list_empty(const struct list *head) {
    return head->next == head;
}

static inline void list_insert_before(struct list *place, struct list *node) {
    node->next = place;
    node->prev = place->prev;
    place->prev->next = node;
    place->prev = node;
}

#define list_append(head, node) list_insert_before((head), (node))

/* Leaves the node alone in a ring of its own, so that removing it twice is harmless. */
static inline void list_remove(struct list *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

#endif
