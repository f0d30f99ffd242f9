/* test_list.c - a ring keeps its order, whatever is put in and taken out on the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/list.h"

struct thing {
    int number;
    struct list node;
};

/* The list has the numbers, forwards and backwards. */
static void assert_list(struct list *head, const int *numbers, int count) {
    struct list *node = head;

    for (int i = 0; i < count; i++) {
        node = node->next;
        assert_int_equal(list_entry(node, struct thing, node)->number, numbers[i]);
    }
    assert_ptr_equal(node->next, head);
    for (int i = count - 1; i >= 0; i--, node = node->prev)
        assert_int_equal(list_entry(node, struct thing, node)->number, numbers[i]);
    assert_ptr_equal(node, head);
    assert_int_equal(list_empty(head), count == 0);
}

static void elements_stand_where_they_were_put(void **state) {
    struct list head;
    struct thing things[4] = {{.number = 0}, {.number = 1}, {.number = 2}, {.number = 3}};

    (void)state;
    list_init(&head);
    assert_list(&head, NULL, 0);
    list_append(&head, &things[1].node);
    list_append(&head, &things[3].node);
    list_insert_before(&things[3].node, &things[2].node);
    list_insert_before(head.next, &things[0].node);
    assert_list(&head, (int[]){0, 1, 2, 3}, 4);
}

static void a_removed_element_is_alone_and_may_be_removed_again(void **state) {
    struct list head;
    struct thing things[3] = {{.number = 0}, {.number = 1}, {.number = 2}};

    (void)state;
    list_init(&head);
    for (int i = 0; i < 3; i++)
        list_append(&head, &things[i].node);
    list_remove(&things[1].node);
    assert_true(list_empty(&things[1].node));
    list_remove(&things[1].node);
    assert_list(&head, (int[]){0, 2}, 2);
    list_append(&head, &things[1].node);
    assert_list(&head, (int[]){0, 2, 1}, 3);
}

static void elements_may_go_while_the_list_is_walked(void **state) {
    struct list head, *node, *after;
    struct thing things[6];
    int seen = 0;

    (void)state;
    list_init(&head);
    list_each (node, after, &head)
        fail();
    for (int i = 0; i < 6; i++) {
        things[i].number = i;
        list_append(&head, &things[i].node);
    }
    list_each (node, after, &head) {
        struct thing *thing = list_entry(node, struct thing, node);

        assert_int_equal(thing->number, seen++);
        if (thing->number % 2 == 0)
            list_remove(node);
    }
    assert_int_equal(seen, 6);
    assert_list(&head, (int[]){1, 3, 5}, 3);
    list_each (node, after, &head)
        list_remove(node);
    assert_list(&head, NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_stand_where_they_were_put),
        cmocka_unit_test(a_removed_element_is_alone_and_may_be_removed_again),
        cmocka_unit_test(elements_may_go_while_the_list_is_walked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
