/* New epochs: announcements, tombstones, doubts, publishing again; and leadership. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

/* A master of EPOCH that begins with owners 1 to `owners`, none of which has announced. */
static struct bench *taken_over(uint32_t owners) {
    struct bench *bench = bench_open(NULL);
    struct message_id members[4];

    for (uint32_t owner = 1; owner <= owners; owner++)
        members[owner - 1] = bench_owner(owner);
    master_lead(bench->master, bench->now, EPOCH, UINT64_MAX, members, owners, true);
    return bench;
}

static uint64_t publish_again(struct bench *bench, uint32_t owner, uint64_t generation, uint32_t flags,
                              uint64_t counter) {
    struct message_place place = bench_place(owner, generation);

    return bench_publish(bench, 1, generation, "k", flags | PUBLISH_AGAIN, counter == 0 ? 0 : EPOCH - 1, counter,
                         &place, 1);
}

static void it_serves_when_all_have_announced(void **state) {
    struct bench *bench = taken_over(2);

    (void)state;
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_UNAVAILABLE);
    assert_int_equal(bench_mount(bench, 1, NULL, 0), MC_OK);
    assert_false(master_serves(bench->master, bench->now));
    assert_int_equal(bench_mount(bench, 2, NULL, 0), MC_OK);
    assert_true(master_serves(bench->master, bench->now));
    bench_close(bench);
}

static void it_serves_after_the_grace_time_without_the_rest(void **state) {
    struct bench *bench = taken_over(2);

    (void)state;
    bench_mount(bench, 1, NULL, 0);
    bench_advance(bench, 2999 * MS);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_UNAVAILABLE);
    bench_advance(bench, 1 * MS);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_NOT_FOUND);
    bench_close(bench);
}

static void without_members_it_waits_for_the_grace_time_only_if_told_so(void **state) {
    struct bench *bench = taken_over(0);

    (void)state;
    assert_false(master_serves(bench->master, bench->now));
    bench_advance(bench, 3000 * MS);
    assert_true(master_serves(bench->master, bench->now));
    master_lead(bench->master, bench->now, EPOCH + 1, UINT64_MAX, NULL, 0, false);
    assert_true(master_serves(bench->master, bench->now));
    bench_close(bench);
}

static void the_highest_announced_version_wins(void **state) {
    struct bench *bench = taken_over(2);
    struct bench_holding low = {SLOT_LIVE, 5, 3, 9, "k"}, high = {SLOT_LIVE, 6, 4, 1, "k"};
    struct message_command command;
    struct message_place place;

    (void)state;
    assert_int_equal(bench_mount(bench, 1, &low, 1), MC_OK);
    assert_int_equal(bench_mount(bench, 2, &high, 1), MC_OK);
    assert_int_equal(bench_lookup(bench, "k", 0, &place), 1);
    assert_int_equal(place.generation, 6);
    assert_int_equal(bench_commands(bench, bench_poll(bench, 1, 0, 0), &command, 1), 1);
    assert_int_equal(command.kind, COMMAND_KILL);
    assert_int_equal(command.generation, 5);
    bench_close(bench);
}

static void replicas_of_one_version_find_each_other(void **state) {
    struct bench *bench = taken_over(2);
    struct bench_holding one = {SLOT_LIVE, 5, 4, 1, "k"}, other = {SLOT_LIVE, 6, 4, 1, "k"};

    (void)state;
    bench_mount(bench, 1, &one, 1);
    bench_mount(bench, 2, &other, 1);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), 2);
    assert_int_equal(master_count(bench->master).kills, 0);
    bench_close(bench);
}

static void what_was_removed_meanwhile_stays_removed(void **state) {
    struct bench *bench = taken_over(2);
    struct bench_holding holding = {SLOT_LIVE, 5, 4, 1, "k"};

    (void)state;
    bench_mount(bench, 1, NULL, 0);
    bench_advance(bench, 4000 * MS);
    assert_int_equal(bench_verdict(bench, bench_remove(bench, 1, 1, "k"), NULL), MC_ERR_NOT_FOUND);
    bench_mount(bench, 2, &holding, 1);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_NOT_FOUND);
    assert_int_equal(master_count(bench->master).kills, 1);
    bench_close(bench);
}

static void tombstones_go_when_nothing_can_come_late(void **state) {
    struct bench *bench = taken_over(2);
    struct bench_holding holding = {SLOT_LIVE, 5, 4, 1, "k"};

    (void)state;
    bench_mount(bench, 1, NULL, 0);
    bench_mount(bench, 2, NULL, 0);
    bench_remove(bench, 1, 1, "k");
    bench_advance(bench, 3000 * MS);
    /* A segment that nobody has heard of would bring back what was removed: it is given up. */
    assert_int_equal(bench_mount(bench, 3, &holding, 1), MC_ERR_EXPELLED);
    assert_int_equal(bench_mount(bench, 3, NULL, 0), MC_ERR_EXPELLED);
    assert_int_equal(bench_mount(bench, 4, NULL, 0), MC_OK);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_NOT_FOUND);
    bench_close(bench);
}

static void what_an_earlier_epoch_gave_up_does_not_come_back(void **state) {
    struct bench *bench = taken_over(1);
    struct bench_holding doubt = {SLOT_RESERVED, 5, 0, 0, "k"};

    (void)state;
    /* It is no member, so its holder may have been told long ago that all of this is settled. */
    assert_int_equal(bench_mount(bench, 2, &doubt, 1), MC_ERR_EXPELLED);
    assert_int_equal(master_count(bench->master).doubts, 0);
    assert_int_equal(bench_mount(bench, 1, &doubt, 1), MC_OK);
    assert_int_equal(master_count(bench->master).doubts, 1);
    bench_close(bench);
}

/* Else what was said before to be settled would cover the replica (rule 13). */
static void an_ok_that_takes_a_replica_out_of_doubt_is_newer_than_what_was_said_before(void **state) {
    struct bench *bench = taken_over(2);
    struct bench_holding live = {SLOT_LIVE, 5, EPOCH - 1, 1, "k"}, doubt = {SLOT_RESERVED, 6, 0, 0, "k"};
    struct message_place places[2] = {bench_place(1, 5), bench_place(2, 6)};
    struct message_stamp before, after;

    (void)state;
    bench_mount(bench, 1, &live, 1);
    bench_mount(bench, 2, &doubt, 1);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 2, "other", 0, 1, 7), NULL), MC_OK);
    bench_poll(bench, 1, EVENT_PROMOTED, 7);
    before = bench_beat(bench, 1);
    assert_int_equal(before.settled, 2);
    assert_int_equal(bench_verdict(bench, bench_publish(bench, 1, 1, "k", PUBLISH_AGAIN, 0, 0, places, 2), NULL),
                     MC_OK);
    after = bench_beat(bench, 1);
    assert_int_equal(after.settled, 0);
    assert_true(after.sequence > before.sequence);
    bench_close(bench);
}

static void a_key_in_doubt_is_not_decided_about(void **state) {
    struct bench *bench = taken_over(1);
    struct bench_holding doubt = {SLOT_RESERVED, 5, 0, 0, "k"};
    struct message_command command;
    uint64_t put, removal, poll;

    (void)state;
    bench_mount(bench, 1, &doubt, 1);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), SILENT);
    assert_int_equal(bench_probe(bench, "k"), SILENT);
    assert_int_equal(bench_probe(bench, "other"), 0);
    put = bench_put(bench, 2, 1, "k", 0, 1, 9);
    removal = bench_remove(bench, 3, 1, "k");
    assert_int_equal(bench_verdict(bench, put, NULL), SILENT);
    assert_int_equal(bench_verdict(bench, removal, NULL), SILENT);
    assert_int_equal(bench_commands(bench, bench_poll(bench, 1, 0, 0), &command, 1), 1);
    assert_int_equal(command.kind, COMMAND_ASK);
    poll = bench_poll(bench, 1, EVENT_NOT_RESERVED, 5);
    assert_int_equal(bench_verdict(bench, put, NULL), MC_OK);
    assert_int_equal(master_count(bench->master).doubts, 0);
    assert_int_equal(bench_commands(bench, poll, &command, 1), 1); /* then the removal had its turn */
    assert_int_equal(command.kind, COMMAND_KILL);
    assert_int_equal(bench_verdict(bench, removal, NULL), SILENT);
    bench_poll(bench, 1, EVENT_KILLED, 9);
    assert_int_equal(bench_verdict(bench, removal, NULL), MC_OK);
    bench_close(bench);
}

static void a_doubt_ends_when_its_holder_publishes(void **state) {
    struct bench *bench = taken_over(1);
    struct bench_holding doubt = {SLOT_RESERVED, 5, 0, 0, "k"};
    struct message_verdict verdict;
    uint64_t tag;

    (void)state;
    bench_mount(bench, 1, &doubt, 1);
    tag = publish_again(bench, 1, 5, 0, 77);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), 1);
    assert_int_equal(bench_verdict(bench, tag, NULL), SILENT); /* with `again`, not before it is promoted */
    bench_obey(bench, 1);
    assert_int_equal(bench_verdict(bench, tag, &verdict), MC_OK);
    assert_int_equal(verdict.version_epoch, EPOCH - 1);
    assert_int_equal(verdict.version_counter, 77);
    assert_int_equal(master_count(bench->master).doubts, 0);
    bench_close(bench);
}

static void nothing_exists_against_what_is_published_again_and_not_promoted(void **state) {
    struct bench *bench = taken_over(1);
    struct bench_holding doubt = {SLOT_RESERVED, 5, 0, 0, "k"};
    uint64_t again, put;

    (void)state;
    bench_mount(bench, 1, &doubt, 1);
    again = publish_again(bench, 1, 5, 0, 0);
    put = bench_put(bench, 2, 1, "k", 0, 1, 9);
    assert_int_equal(bench_verdict(bench, put, NULL), SILENT);
    bench_poll(bench, 1, EVENT_NOT_PROMOTED, 5);
    assert_int_equal(bench_verdict(bench, again, NULL), MC_ERR_GONE);
    assert_int_equal(bench_verdict(bench, put, NULL), MC_OK);
    bench_close(bench);
}

static void one_that_had_an_ok_passes_over_others_doubts(void **state) {
    struct bench *bench = taken_over(1);
    struct bench_holding doubts[2] = {{SLOT_RESERVED, 5, 0, 0, "k"}, {SLOT_RESERVED, 6, 0, 0, "k"}};
    uint64_t fresh, again;

    (void)state;
    bench_mount(bench, 1, doubts, 2);
    fresh = publish_again(bench, 1, 6, 0, 0);
    assert_int_equal(bench_verdict(bench, fresh, NULL), SILENT);
    again = publish_again(bench, 1, 5, 0, 3);
    bench_obey(bench, 1);
    assert_int_equal(bench_verdict(bench, again, NULL), MC_OK);
    assert_int_equal(bench_verdict(bench, fresh, NULL), MC_ERR_ALREADY_EXISTS);
    bench_close(bench);
}

static void published_again_it_loses_to_what_is_newer(void **state) {
    struct bench *bench = taken_over(2);
    struct bench_holding newer = {SLOT_LIVE, 6, EPOCH - 1, 9, "k"}, doubt = {SLOT_RESERVED, 5, 0, 0, "k"};
    struct message_place place;

    (void)state;
    bench_mount(bench, 1, &doubt, 1);
    bench_mount(bench, 2, &newer, 1);
    assert_int_equal(bench_verdict(bench, publish_again(bench, 1, 5, 0, 3), NULL), MC_ERR_GONE);
    assert_int_equal(master_count(bench->master).kills, 1);
    assert_int_equal(bench_lookup(bench, "k", 0, &place), 1);
    assert_int_equal(place.generation, 6);
    bench_close(bench);
}

static void what_was_promoted_before_is_answered_with_its_version(void **state) {
    struct bench *bench = taken_over(1);
    struct bench_holding live = {SLOT_LIVE, 5, EPOCH - 1, 9, "k"};
    struct message_verdict verdict;

    (void)state;
    bench_mount(bench, 1, &live, 1);
    assert_int_equal(bench_verdict(bench, publish_again(bench, 1, 5, 0, 0), &verdict), MC_OK);
    assert_int_equal(verdict.version_counter, 9);
    assert_int_equal(bench_beat(bench, 1).settled, 5);
    bench_close(bench);
}

static void an_orphan_is_dropped_and_never_accepted_afterwards(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_command command;

    (void)state;
    assert_int_equal(bench_commands(bench, bench_poll(bench, 1, EVENT_ORPHAN, 5), &command, 1), 1);
    assert_int_equal(command.kind, COMMAND_DROP);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "k", 0, 1, 5), NULL), MC_ERR_GONE);
    assert_int_equal(bench_commands(bench, bench_poll(bench, 1, EVENT_ORPHAN, 5), &command, 1), 1);
    bench_close(bench);
}

static void an_orphan_with_an_entry_or_a_kill_is_left_alone(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_command command;

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    assert_int_equal(bench_commands(bench, bench_poll(bench, 1, EVENT_ORPHAN, 5), &command, 1), 1);
    assert_int_equal(command.kind, COMMAND_PROMOTE);
    bench_remove(bench, 1, 2, "k");
    assert_int_equal(bench_commands(bench, bench_poll(bench, 1, EVENT_ORPHAN, 5), &command, 1), 1);
    assert_int_equal(command.kind, COMMAND_KILL);
    bench_close(bench);
}

static void requests_of_other_epochs_change_nothing(void **state) {
    struct bench *bench = bench_serving(1);

    (void)state;
    bench->epoch = EPOCH - 1;
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "k", 0, 1, 5), NULL), MC_ERR_EPOCH);
    assert_int_equal(bench_verdict(bench, bench_remove(bench, 1, 2, "k"), NULL), MC_ERR_EPOCH);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_NOT_FOUND);
    assert_int_equal(bench_beat(bench, 1).epoch, EPOCH);
    assert_int_equal(master_higher_epoch(bench->master), 0);
    bench->epoch = EPOCH + 1;
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "k", 0, 1, 5), NULL), MC_ERR_UNAVAILABLE);
    assert_int_equal(master_higher_epoch(bench->master), EPOCH + 1);
    bench_close(bench);
}

static void versions_of_this_epoch_in_an_announcement_mean_another_master(void **state) {
    struct bench *bench = taken_over(1);
    struct bench_holding holding = {SLOT_LIVE, 5, EPOCH, 1, "k"};

    (void)state;
    assert_int_equal(bench_mount(bench, 1, &holding, 1), MC_ERR_UNAVAILABLE);
    assert_true(master_higher_epoch(bench->master) > EPOCH);
    bench_close(bench);
}

static void a_lease_ends_no_later_than_leadership_and_so_do_answers(void **state) {
    struct bench *bench = bench_serving(1);
    uint64_t upsert, poll;

    (void)state;
    assert_int_equal(bench_beat(bench, 1).lease, 5000 * MS);
    master_lead(bench->master, bench->now, EPOCH, bench->now + 300 * MS, NULL, 0, false);
    assert_int_equal(bench_beat(bench, 1).lease, 300 * MS);
    upsert = bench_put(bench, 1, 1, "k", PUBLISH_UPSERT, 1, 5);
    assert_int_equal(bench_commands(bench, bench_poll(bench, 1, 0, 0), NULL, 0), 1);
    poll = bench_poll(bench, 1, 0, 0);
    bench_advance(bench, 299 * MS);
    assert_int_equal(bench_verdict(bench, upsert, NULL), SILENT);
    bench_advance(bench, 1 * MS);
    assert_int_equal(bench_verdict(bench, upsert, NULL), MC_ERR_UNAVAILABLE);
    assert_int_equal(bench_status(bench, poll), MC_ERR_UNAVAILABLE);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_UNAVAILABLE);
    assert_int_equal(bench_status(bench, bench_poll(bench, 1, EVENT_PROMOTED, 5)), MC_ERR_UNAVAILABLE);
    assert_int_equal(master_wake(bench->master), UINT64_MAX);
    master_lead(bench->master, bench->now, EPOCH, UINT64_MAX, NULL, 0, false);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), 1);
    bench_close(bench);
}

static void who_waits_when_it_steps_down_is_told(void **state) {
    struct bench *bench = bench_serving(1);
    uint64_t upsert = bench_put(bench, 1, 1, "k", PUBLISH_UPSERT, 1, 5), poll;

    (void)state;
    assert_int_equal(bench_commands(bench, bench_poll(bench, 1, 0, 0), NULL, 0), 1);
    poll = bench_poll(bench, 1, 0, 0);
    master_step_down(bench->master);
    assert_int_equal(master_epoch(bench->master), 0);
    bench_step(bench);
    assert_int_equal(bench_verdict(bench, upsert, NULL), MC_ERR_UNAVAILABLE);
    assert_int_equal(bench_status(bench, poll), MC_ERR_UNAVAILABLE);
    bench_close(bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_serves_when_all_have_announced),
        cmocka_unit_test(it_serves_after_the_grace_time_without_the_rest),
        cmocka_unit_test(without_members_it_waits_for_the_grace_time_only_if_told_so),
        cmocka_unit_test(the_highest_announced_version_wins),
        cmocka_unit_test(replicas_of_one_version_find_each_other),
        cmocka_unit_test(what_was_removed_meanwhile_stays_removed),
        cmocka_unit_test(tombstones_go_when_nothing_can_come_late),
        cmocka_unit_test(what_an_earlier_epoch_gave_up_does_not_come_back),
        cmocka_unit_test(an_ok_that_takes_a_replica_out_of_doubt_is_newer_than_what_was_said_before),
        cmocka_unit_test(a_key_in_doubt_is_not_decided_about),
        cmocka_unit_test(a_doubt_ends_when_its_holder_publishes),
        cmocka_unit_test(nothing_exists_against_what_is_published_again_and_not_promoted),
        cmocka_unit_test(one_that_had_an_ok_passes_over_others_doubts),
        cmocka_unit_test(published_again_it_loses_to_what_is_newer),
        cmocka_unit_test(what_was_promoted_before_is_answered_with_its_version),
        cmocka_unit_test(an_orphan_is_dropped_and_never_accepted_afterwards),
        cmocka_unit_test(an_orphan_with_an_entry_or_a_kill_is_left_alone),
        cmocka_unit_test(requests_of_other_epochs_change_nothing),
        cmocka_unit_test(versions_of_this_epoch_in_an_announcement_mean_another_master),
        cmocka_unit_test(a_lease_ends_no_later_than_leadership_and_so_do_answers),
        cmocka_unit_test(who_waits_when_it_steps_down_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
