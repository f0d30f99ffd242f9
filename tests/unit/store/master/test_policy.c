/* The policies' books: what they hold, in which order it goes, and what the learning one is made of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "store/master/ghosts.h"
#include "store/master/hazard.h"
#include "store/master/policy.h"

enum { ENTRIES = 500, ROUNDS = 200000 };

static const struct policy_ops *const policies[] = {&policy_lru, &policy_hazard};

/* Anything is done to a book in any order; it is asked what it holds. */
static void a_book_holds_what_is_in_it_and_pinned_entries_go_last(void **state) {
    (void)state;
    for (size_t p = 0; p < 2; p++) {
        const struct policy_ops *policy = policies[p];
        struct policy_book *book = policy->open();
        struct policy_entry *entries = calloc(ENTRIES, sizeof(*entries));
        bool *in = calloc(ENTRIES, sizeof(*in));
        struct random random = {.state = 7 + p};
        uint32_t counts[POLICY_TIERS] = {0};

        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint32_t i = (uint32_t)random_below(&random, ENTRIES);
            struct policy_entry *entry = &entries[i], *victim;
            const struct policy_news news = {.key = i * 0x9e3779b97f4a7c15ull, .last = i % 7 == 0};

            switch (random_below(&random, 5)) {
            case 0:
                if (in[i])
                    break;
                *entry = (struct policy_entry){.tier = (uint32_t)random_below(&random, POLICY_TIERS)};
                list_init(&entry->node);
                policy->insert(book, entry, &news);
                in[i] = true;
                counts[entry->tier]++;
                break;
            case 1:
                if (in[i])
                    policy->touch(book, entry);
                break;
            case 2:
                if (in[i] && entry->tier == POLICY_SOFT_PINNED) {
                    policy->move(book, entry, POLICY_PLAIN);
                    counts[POLICY_SOFT_PINNED]--;
                    counts[POLICY_PLAIN]++;
                } else if (in[i] && round % 3 == 0) {
                    policy->remove(book, entry);
                    in[i] = false;
                    counts[entry->tier]--;
                }
                break;
            default:
                victim = policy->victim(book, POLICY_SOFT_PINNED);
                if (counts[POLICY_PLAIN] + counts[POLICY_SOFT_PINNED] == 0) {
                    assert_null(victim);
                    break;
                }
                assert_int_equal(victim->tier, counts[POLICY_PLAIN] > 0 ? POLICY_PLAIN : POLICY_SOFT_PINNED);
                assert_true(in[victim - entries]);
                policy->evict(book, victim, (uint64_t)(victim - entries) * 0x9e3779b97f4a7c15ull);
                policy->remove(book, victim); /* as the record does that it belongs to */
                in[victim - entries] = false;
                counts[victim->tier]--;
            }
        }
        assert_true(counts[POLICY_HARD_PINNED] > 0);
        for (struct policy_entry *entry; (entry = policy->any(book)) != NULL; counts[entry->tier]--)
            policy->remove(book, entry);
        for (int tier = 0; tier < POLICY_TIERS; tier++)
            assert_int_equal(counts[tier], 0);
        policy->close(book);
        free(entries);
        free(in);
    }
}

static void the_first_victim_of_a_new_book_is_the_oldest(void **state) {
    struct policy_book *book = policy_hazard.open();
    static struct policy_entry entries[3];
    const struct policy_news news = {.key = 1};

    (void)state;
    for (int i = 0; i < 3; i++) {
        list_init(&entries[i].node);
        policy_hazard.insert(book, &entries[i], &news);
    }
    policy_hazard.touch(book, &entries[0]);
    assert_ptr_equal(policy_hazard.victim(book, POLICY_PLAIN), &entries[1]);
    policy_hazard.close(book);
}

static void bins_are_thirds_of_octaves_without_gaps(void **state) {
    (void)state;
    assert_int_equal(hazard_bin(0), 0);
    for (uint32_t bin = 0; bin < HAZARD_BINS; bin++) {
        uint64_t begin = hazard_bin_begin(bin), end = hazard_bin_begin(bin + 1);

        assert_true(begin <= end);
        if (begin == end) /* the smallest are empty */
            continue;
        assert_int_equal(hazard_bin(begin), bin);
        assert_int_equal(hazard_bin(end - 1), bin);
    }
    assert_int_equal(hazard_bin(UINT64_MAX), HAZARD_BINS - 1);
}

/* Reads at ages of about 100, never at 10,000: what is 50 old is worth more than what is 10,000 old or new and of a class
 * that is never read. */
static void ranks_follow_what_was_seen(void **state) {
    static float present[HAZARD_CLASSES][HAZARD_BINS];
    struct hazard *hazard = calloc(1, sizeof(*hazard));
    uint32_t place[HAZARD_CELLS];

    (void)state;
    hazard_init(hazard);
    for (uint64_t i = 0; i < 1000; i++) {
        hazard_note(hazard, 1, 80 + i % 40, true);
        hazard_note(hazard, 1, 10000, false);
        hazard_note(hazard, 0, 10000, false);
    }
    hazard_learn(hazard, (const float(*)[HAZARD_BINS])present);
    for (uint32_t i = 0; i < HAZARD_CELLS; i++)
        place[hazard->ranked[i]] = i;
    assert_true(place[HAZARD_BINS + hazard_bin(50)] > place[HAZARD_BINS + hazard_bin(10000)]);
    assert_true(place[HAZARD_BINS + hazard_bin(50)] > place[hazard_bin(50)]);
    assert_true(place[HAZARD_BINS + hazard_bin(50)] > place[HAZARD_BINS + hazard_bin(500)]);
    free(hazard);
}

/* Against an array of all keys. */
static void ghosts_are_found_once_and_go_in_the_order_of_their_eviction(void **state) {
    enum { KEYS = 3000 };
    struct random random = {.state = 3};
    struct ghosts ghosts = {0};
    uint64_t *added = calloc(KEYS, sizeof(*added)), clock = 0, state_found, newest_gone = 0;
    uint32_t there = 0;

    (void)state;
    for (uint32_t round = 0; round < 300000; round++) {
        uint64_t key = random_below(&random, KEYS);

        if (added[key] != 0) {
            assert_true(ghosts_take(&ghosts, key + 1, &state_found));
            assert_int_equal(state_found, added[key] << 16 | key);
            added[key] = 0;
            there--;
        } else {
            assert_false(ghosts_take(&ghosts, key + 1, &state_found));
            added[key] = ++clock;
            ghosts_add(&ghosts, key + 1, clock << 16 | key);
            there++;
        }
        while (ghosts_shrink(&ghosts, 1000, &state_found)) {
            key = state_found & 0xffff;
            assert_int_equal(added[key], state_found >> 16);
            assert_true(added[key] > newest_gone);
            newest_gone = added[key];
            added[key] = 0;
            there--;
        }
        assert_true(there <= ghosts.count && ghosts.count <= 1000);
    }
    assert_true(newest_gone > 0);
    ghosts_clear(&ghosts);
    assert_false(ghosts_take(&ghosts, 1, &state_found));
    free(added);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_book_holds_what_is_in_it_and_pinned_entries_go_last),
        cmocka_unit_test(the_first_victim_of_a_new_book_is_the_oldest),
        cmocka_unit_test(bins_are_thirds_of_octaves_without_gaps),
        cmocka_unit_test(ranks_follow_what_was_seen),
        cmocka_unit_test(ghosts_are_found_once_and_go_in_the_order_of_their_eviction),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
