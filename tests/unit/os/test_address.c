/* test_address.c - an address is understood exactly or refused in words, and comes out as it went in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#include <cmocka.h>

#include "os/address.h"

#define ELEMENTS(array) (sizeof(array) / sizeof((array)[0]))

/* Fault 8. */
static void well_formed_addresses_come_apart(void **state) {
    static const struct {
        const char *text;
        const char *host;
        int32_t port;
    } table[] = {
        {"1.2.3.4", "1.2.3.4", -1},
        {"1.2.3.4:5", "1.2.3.4", 5},
        {"0.0.0.0:0", "0.0.0.0", 0},
        {"255.255.255.255:65535", "255.255.255.255", 65535},
        {"host", "host", -1},
        {"host:0", "host", 0},
        {"host:00080", "host", 80},
        {"host.example.com:5000", "host.example.com", 5000},
        {"host.example.com.", "host.example.com.", -1},
        {"my_container-1:80", "my_container-1", 80},
        {"_srv", "_srv", -1},
        {"7up.example", "7up.example", -1},
        {"1.2.3.4.example", "1.2.3.4.example", -1},
        {"3com", "3com", -1},
        {"0xyz", "0xyz", -1},
        {"::1", "::1", -1},
        {"::", "::", -1},
        {"[::1]", "::1", -1},
        {"[::1]:5000", "::1", 5000},
        {"[::]:0", "::", 0},
        {"::1:5000", "::1:5000", -1},
        {"2001:db8::7", "2001:db8::7", -1},
        {"::ffff:1.2.3.4", "::ffff:1.2.3.4", -1},
        {"[::ffff:1.2.3.4]:9", "::ffff:1.2.3.4", 9},
        {"fe80::1%lo", "fe80::1%lo", -1},
        {"[fe80::1%lo]", "fe80::1%lo", -1},
        {"[fe80::1%eth0.100]:5", "fe80::1%eth0.100", 5},
        {"fe80::1%1", "fe80::1%1", -1},
        {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8", -1},
        {"[ABCD:2:3:4:5:6:7:8]:65535", "ABCD:2:3:4:5:6:7:8", 65535},
    };

    (void)state;
    for (size_t i = 0; i < ELEMENTS(table); i++) {
        struct mc_error error = {.struct_size = sizeof(error)};
        struct address_text parts;

        memset(&parts, 0x5a, sizeof(parts));
        if (address_parse(table[i].text, &parts, &error) != MC_OK)
            fail_msg("%s: %s", table[i].text, error.message);
        assert_string_equal(parts.host, table[i].host);
        assert_int_equal(parts.port, table[i].port);
    }
}

/* Fault 8. */
static void malformed_addresses_are_refused_in_words(void **state) {
    static const char *const table[] = {
        "",
        ":",
        ":5",
        "host:",
        "1.2.3.4:",
        "[::1]:",
        "1.2.3.4:99999",
        "1.2.3.4:65536",
        "1.2.3.4:100000",
        "1.2.3.4:4294967297",
        "1.2.3.4:-1",
        "1.2.3.4:+1",
        "1.2.3.4: 1",
        "1.2.3.4:1 ",
        "1.2.3.4:0x50",
        "1.2.3.4:http",
        "1.2.3.4:5:6",
        "a:b:c",
        "a:1:2",
        "1.2.3",
        "127.1",
        "12345",
        "0x7f000001",
        "host.0x7f",
        "1.2.3.4.5",
        "256.1.1.1",
        "1.2.3.256",
        "01.2.3.4",
        "1..3.4",
        "1.2.3.4.",
        ".",
        "..",
        ".host",
        "host..",
        "a..b",
        "-host",
        "host-",
        "a.-b",
        "ho st",
        " host",
        "host ",
        "host\n",
        "host/path",
        "http://host",
        "user@host",
        "h\xc3\xb6st",
        "host%eth0",
        "1.2.3.4%eth0",
        "[",
        "]",
        "[]",
        "[]:5",
        "[::1",
        "::1]",
        "[::1]5",
        "[::1]]:5",
        "[[::1]]:5",
        "[::1]:5:6",
        "[::1]:99999",
        "[::1] ",
        "[host]:5",
        "[1.2.3.4]:5",
        ":::",
        "1::2::3",
        "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:8:9",
        "12345::",
        "::g",
        "fe80::1%",
        "[fe80::1%]:5",
        "fe80::1%lo%lo",
        "fe80::1%a/b",
        "fe80::1%a b",
        "fe80::1%sixteen_bytes_xx",
        "%lo",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };

    (void)state;
    for (size_t i = 0; i < ELEMENTS(table); i++) {
        struct mc_error error = {.struct_size = sizeof(error)};
        struct address_text parts, before;

        memset(&parts, 0x5a, sizeof(parts));
        before = parts;
        if (address_parse(table[i], &parts, &error) != MC_ERR_ADDRESS)
            fail_msg("\"%s\" was taken", table[i]);
        assert_memory_equal(&parts, &before, sizeof(parts));
        assert_int_equal(error.code, MC_ERR_ADDRESS);
        assert_true(strlen(error.message) > 0);
    }
    assert_int_equal(address_parse(NULL, NULL, NULL), MC_ERR_ADDRESS);
}

/* "a.a.a…" of `length` bytes. */
static void make_name(char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        text[i] = i % 2 == 0 ? 'a' : '.';
    text[length] = '\0';
}

static void a_name_may_have_253_bytes_and_a_text_what_its_buffer_holds(void **state) {
    struct address_text parts;
    char text[2000];

    (void)state;
    make_name(text, 253);
    assert_int_equal(address_parse(text, &parts, NULL), MC_OK);
    (void)strcat(text, ":65535");
    assert_int_equal(address_parse(text, &parts, NULL), MC_OK);
    assert_int_equal(strlen(parts.host), 253);
    make_name(text, 255);
    assert_int_equal(address_parse(text, &parts, NULL), MC_ERR_ADDRESS);
    for (size_t length = 281; length < 1999; length += 2) {
        make_name(text, length);
        assert_int_equal(address_parse(text, &parts, NULL), MC_ERR_ADDRESS);
    }
}

static void numeric_hosts_resolve_without_a_look_up_and_format_back(void **state) {
    static const struct {
        const char *host;
        uint16_t port;
        const char *text;
    } table[] = {
        {"1.2.3.4", 5, "1.2.3.4:5"},
        {"0.0.0.0", 0, "0.0.0.0:0"},
        {"::1", 65535, "[::1]:65535"},
        {"::", 1, "[::]:1"},
        {"2001:DB8:0:0::7", 80, "[2001:db8::7]:80"},
        {"fe80::1%lo", 7, "[fe80::1%lo]:7"},
        {"fe80::1%1", 7, "[fe80::1%lo]:7"},
        {"fe80::1%4000000000", 7, "[fe80::1%4000000000]:7"},
    };

    (void)state;
    for (size_t i = 0; i < ELEMENTS(table); i++) {
        struct address addresses[2];
        char text[ADDRESS_TEXT_MAX];
        size_t count = 0;

        assert_int_equal(address_resolve(table[i].host, table[i].port, addresses, 2, &count, NULL), MC_OK);
        assert_int_equal(count, 1);
        assert_int_equal(address_port(&addresses[0]), table[i].port);
        address_format(&addresses[0], text);
        assert_string_equal(text, table[i].text);
    }
}

static void a_scope_becomes_the_number_of_its_interface(void **state) {
    struct address address;
    size_t count = 0;

    (void)state;
    assert_int_equal(address_resolve("fe80::1%lo", 7, &address, 1, &count, NULL), MC_OK);
    assert_int_equal(((struct sockaddr_in6 *)&address.storage)->sin6_scope_id, if_nametoindex("lo"));
    assert_int_equal(address.length, sizeof(struct sockaddr_in6));
}

static void an_unknown_interface_or_name_is_not_found_and_named(void **state) {
    static const char *const hosts[] = {"fe80::1%nosuch", "fe80::1%0", "fe80::1%4294967297", "no such host",
                                        "nosuch.invalid"};

    (void)state;
    for (size_t i = 0; i < ELEMENTS(hosts); i++) {
        struct mc_error error = {.struct_size = sizeof(error)};
        struct address address;
        size_t count = 42;

        assert_int_equal(address_resolve(hosts[i], 7, &address, 1, &count, &error), MC_ERR_NAME_NOT_FOUND);
        assert_int_equal(count, 42);
        assert_non_null(strstr(error.message, hosts[i]));
    }
}

static void localhost_resolves_to_loopback_within_the_capacity(void **state) {
    struct address addresses[8];
    size_t count = 0;

    (void)state;
    assert_int_equal(address_resolve("localhost", 5000, addresses, 8, &count, NULL), MC_OK);
    assert_in_range(count, 1, 8);
    for (size_t i = 0; i < count; i++) {
        char text[ADDRESS_TEXT_MAX];

        address_format(&addresses[i], text);
        assert_true(strcmp(text, "[::1]:5000") == 0 || strncmp(text, "127.", 4) == 0);
    }
    assert_int_equal(address_resolve("localhost", 5000, addresses, 1, &count, NULL), MC_OK);
    assert_int_equal(count, 1);
    assert_int_equal(address_resolve("localhost", 5000, addresses, 0, &count, NULL), MC_ERR_INVALID_ARGUMENT);
}

static void host_and_port_join_with_brackets_where_needed(void **state) {
    char text[ADDRESS_TEXT_MAX], name[600];

    (void)state;
    address_join("host", 5, text);
    assert_string_equal(text, "host:5");
    address_join("fe80::1%lo", 65535, text);
    assert_string_equal(text, "[fe80::1%lo]:65535");
    make_name(name, 253);
    address_join(name, 65535, text);
    assert_int_equal(strlen(text), 259);
    make_name(name, 599);
    address_join(name, 65535, text);
    assert_true(strlen(text) < ADDRESS_TEXT_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_formed_addresses_come_apart),
        cmocka_unit_test(malformed_addresses_are_refused_in_words),
        cmocka_unit_test(a_name_may_have_253_bytes_and_a_text_what_its_buffer_holds),
        cmocka_unit_test(numeric_hosts_resolve_without_a_look_up_and_format_back),
        cmocka_unit_test(a_scope_becomes_the_number_of_its_interface),
        cmocka_unit_test(an_unknown_interface_or_name_is_not_found_and_named),
        cmocka_unit_test(localhost_resolves_to_loopback_within_the_capacity),
        cmocka_unit_test(host_and_port_join_with_brackets_where_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
