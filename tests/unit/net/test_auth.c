/* test_auth.c - proofs are HMAC-SHA-256 over the right bytes, and only who has the key makes them.
 *
 * dynlib_open is wrapped by the linker, so that libcrypto can be missing, and its compare function can be counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/auth.h"
#include "os/dynlib.h"

#define PAGE MC_SOURCE_ROOT "/docs/protocol.md"

const char *__real_dynlib_open(struct dynlib *library);
const char *__wrap_dynlib_open(struct dynlib *library);

static bool libcrypto_missing;
static int (*real_compare)(const void *one, const void *other, size_t length);
static unsigned int compared; /* calls of CRYPTO_memcmp over 32 bytes */

static int counted_compare(const void *one, const void *other, size_t length) {
    compared += length == 32;
    return real_compare(one, other, length);
}

const char *__wrap_dynlib_open(struct dynlib *library) {
    const char *reason = libcrypto_missing ? "libcrypto.so.3: not here" : __real_dynlib_open(library);

    if (reason != NULL || real_compare != NULL)
        return reason;
    for (const struct dynlib_symbol *symbol = library->symbols; symbol->name != NULL; symbol++)
        if (strcmp(symbol->name, "CRYPTO_memcmp") == 0) {
            real_compare = (int (*)(const void *, const void *, size_t)) * symbol->function;
            *symbol->function = (void *)counted_compare;
        }
    return NULL;
}

/* ---- Keys ------------------------------------------------------------------------------------------------------- */

static char path[64];

static void write_file(const void *bytes, size_t length) {
    int fd;

    snprintf(path, sizeof(path), "/tmp/mooncake-key-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, length), length);
    close(fd);
}

static struct auth *load(const void *key, size_t length) {
    struct mc_error error = {.struct_size = sizeof(error)};
    struct auth *auth = NULL;

    if (auth_unavailable() != NULL)
        skip();
    write_file(key, length);
    assert_int_equal(auth_load(path, &auth, &error), MC_OK);
    unlink(path);
    assert_non_null(auth);
    return auth;
}

/* Loads what must fail, and gives the words. */
static void assert_refused(const char *file, int32_t code, struct mc_error *ret_error) {
    struct auth *untouched = (struct auth *)path;

    memset(ret_error, 0, sizeof(*ret_error));
    ret_error->struct_size = sizeof(*ret_error);
    assert_int_equal(auth_load(file, &untouched, ret_error), code);
    assert_ptr_equal(untouched, path);
    assert_int_equal(ret_error->code, code);
    assert_non_null(strstr(ret_error->message, file));
}

static void a_key_of_any_length_but_those_allowed_is_refused(void **state) {
    static const size_t lengths[] = {0, 1, 15, 4097, 4098, 5000};
    uint8_t bytes[5000];
    struct mc_error error;

    (void)state;
    memset(bytes, 'k', sizeof(bytes));
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        write_file(bytes, lengths[i]);
        assert_refused(path, MC_ERR_INVALID_ARGUMENT, &error);
        assert_null(strstr(error.message, "kkk"));
        unlink(path);
    }
    auth_free(load(bytes, 16));
    auth_free(load(bytes, 4096));
}

static void a_key_file_that_is_not_there_is_a_system_error_with_its_path(void **state) {
    struct mc_error error;

    (void)state;
    assert_refused("/tmp/mooncake-no-such-key", MC_ERR_SYSTEM, &error);
    assert_int_equal(error.system_errno, 2 /* ENOENT */);
}

static void a_directory_or_a_fifo_is_no_key_file(void **state) {
    struct mc_error error;

    (void)state;
    assert_refused("/tmp", MC_ERR_INVALID_ARGUMENT, &error);
    write_file("", 0);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, MC_ERR_INVALID_ARGUMENT, &error);
    unlink(path);
}

static void one_newline_at_the_end_is_not_part_of_the_key(void **state) {
    static const char key[] = "0123456789abcdef";
    static const struct {
        const char *text;
        bool same;
    } cases[] = {{"0123456789abcdef", true}, {"0123456789abcdef\n", true}, {"0123456789abcdef\n\n", false}};
    struct auth *plain = load(key, 16);
    uint8_t right[32], mac[32];
    struct mc_error error;

    (void)state;
    assert_int_equal(auth_hmac(plain, "x", 1, right), MC_OK);
    for (size_t i = 0; i < 3; i++) {
        struct auth *auth = load(cases[i].text, strlen(cases[i].text));

        assert_int_equal(auth_hmac(auth, "x", 1, mac), MC_OK);
        assert_int_equal(memcmp(mac, right, 32) == 0, cases[i].same);
        auth_free(auth);
    }
    auth_free(plain);
    write_file("0123456789abcde\n", 16); /* 15 are left */
    assert_refused(path, MC_ERR_INVALID_ARGUMENT, &error);
    unlink(path);
}

static void no_path_is_no_key(void **state) {
    struct auth *auth = (struct auth *)path;

    (void)state;
    assert_int_equal(auth_load(NULL, &auth, NULL), MC_OK);
    assert_null(auth);
    assert_null(auth_free(NULL));
}

static void a_key_without_libcrypto_is_not_supported_and_says_why(void **state) {
    struct mc_error error = {.struct_size = sizeof(error)};
    struct auth *auth = (struct auth *)path;
    int32_t status;

    (void)state;
    write_file("0123456789abcdef", 16);
    libcrypto_missing = true;
    status = auth_load(path, &auth, &error);
    libcrypto_missing = false;
    unlink(path);
    assert_int_equal(status, MC_ERR_NOT_SUPPORTED);
    assert_ptr_equal(auth, path);
    assert_non_null(strstr(error.message, "libcrypto.so.3: not here"));
}

/* ---- Proofs ----------------------------------------------------------------------------------------------------- */

/* RFC 4231: test cases 1, 4 and 6, whose keys are long enough here. */
static void macs_are_those_of_rfc_4231(void **state) {
    static const uint8_t first[32] = {0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53, 0x5c, 0xa8, 0xaf,
                                      0xce, 0xaf, 0x0b, 0xf1, 0x2b, 0x88, 0x1d, 0xc2, 0x00, 0xc9, 0x83,
                                      0x3d, 0xa7, 0x26, 0xe9, 0x37, 0x6c, 0x2e, 0x32, 0xcf, 0xf7};
    static const uint8_t fourth[32] = {0x82, 0x55, 0x8a, 0x38, 0x9a, 0x44, 0x3c, 0x0e, 0xa4, 0xcc, 0x81,
                                       0x98, 0x99, 0xf2, 0x08, 0x3a, 0x85, 0xf0, 0xfa, 0xa3, 0xe5, 0x78,
                                       0xf8, 0x07, 0x7a, 0x2e, 0x3f, 0xf4, 0x67, 0x29, 0x66, 0x5b};
    static const uint8_t sixth[32] = {0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f, 0x0d, 0x8a, 0x26,
                                      0xaa, 0xcb, 0xf5, 0xb7, 0x7f, 0x8e, 0x0b, 0xc6, 0x21, 0x37, 0x28,
                                      0xc5, 0x14, 0x05, 0x46, 0x04, 0x0f, 0x0e, 0xe3, 0x7f, 0x54};
    static const char large_key[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    uint8_t key[131], data[50], mac[32];
    struct auth *auth;

    (void)state;
    memset(key, 0x0b, 20);
    auth = load(key, 20);
    assert_int_equal(auth_hmac(auth, "Hi There", 8, mac), MC_OK);
    assert_memory_equal(mac, first, 32);
    auth_free(auth);

    for (uint8_t i = 0; i < 25; i++)
        key[i] = (uint8_t)(i + 1);
    memset(data, 0xcd, sizeof(data));
    auth = load(key, 25);
    assert_int_equal(auth_hmac(auth, data, sizeof(data), mac), MC_OK);
    assert_memory_equal(mac, fourth, 32);
    auth_free(auth);

    memset(key, 0xaa, sizeof(key));
    auth = load(key, sizeof(key));
    assert_int_equal(auth_hmac(auth, large_key, sizeof(large_key) - 1, mac), MC_OK);
    assert_memory_equal(mac, sixth, 32);
    auth_free(auth);
}

static void make_hellos(uint8_t client[PREFACE_HELLO_SIZE], uint8_t server[PREFACE_HELLO_SIZE]) {
    struct preface_hello hello = {.version_min = 1, .version_max = 1, .flags = PREFACE_FLAG_KEY};

    for (uint8_t i = 0; i < 16; i++) {
        hello.incarnation[i] = (uint8_t)(0xa0 + i);
        hello.expected[i] = (uint8_t)(0xb0 + i);
    }
    for (uint8_t i = 0; i < 32; i++)
        hello.nonce[i] = (uint8_t)(0x40 + i);
    preface_pack_hello(&hello, client);
    memcpy(hello.incarnation, hello.expected, 16);
    memset(hello.expected, 0, 16);
    for (uint8_t i = 0; i < 32; i++)
        hello.nonce[i] = (uint8_t)(0x60 + i);
    preface_pack_hello(&hello, server);
}

/* Reads `size` bytes in hexadecimal digits behind the label, at the beginning of a line of docs/protocol.md. */
static void read_page(const char *label, uint8_t *bytes, size_t size) {
    char page[65536];
    FILE *file = fopen(PAGE, "r");
    size_t length, digits = 0;
    const char *next;

    assert_non_null(file);
    length = fread(page, 1, sizeof(page) - 1, file);
    fclose(file);
    page[length] = '\0';
    next = strstr(page, label);
    assert_non_null(next);
    memset(bytes, 0, size);
    for (next += strlen(label); digits < 2 * size; next++) {
        static const char hexadecimal[] = "0123456789abcdef";
        const char *digit = strchr(hexadecimal, *next);

        if (*next == ' ' || *next == '\n')
            continue;
        assert_true(*next != '\0' && digit != NULL);
        bytes[digits / 2] = (uint8_t)(bytes[digits / 2] << 4 | (digit - hexadecimal));
        digits++;
    }
}

static void the_worked_example_of_the_protocol_page_is_right(void **state) {
    uint8_t client[PREFACE_HELLO_SIZE], server[PREFACE_HELLO_SIZE], page[PREFACE_HELLO_SIZE];
    uint8_t key[32], bytes[PREFACE_PROOF_SIZE];
    struct preface_proof proof = {0};
    struct auth *auth;

    (void)state;
    read_page("\nkey ", key, sizeof(key));
    auth = load(key, sizeof(key));
    make_hellos(client, server);
    read_page("\nclient HELLO ", page, PREFACE_HELLO_SIZE);
    assert_memory_equal(page, client, PREFACE_HELLO_SIZE);
    read_page("\nserver HELLO ", page, PREFACE_HELLO_SIZE);
    assert_memory_equal(page, server, PREFACE_HELLO_SIZE);
    assert_int_equal(auth_prove(auth, AUTH_CLIENT, client, server, proof.proof), MC_OK);
    preface_pack_proof(&proof, bytes);
    read_page("\nclient PROOF ", page, PREFACE_PROOF_SIZE);
    assert_memory_equal(page, bytes, PREFACE_PROOF_SIZE);
    proof.version = 1;
    assert_int_equal(auth_prove(auth, AUTH_SERVER, client, server, proof.proof), MC_OK);
    preface_pack_proof(&proof, bytes);
    read_page("\nserver ACCEPT ", page, PREFACE_PROOF_SIZE);
    assert_memory_equal(page, bytes, PREFACE_PROOF_SIZE);
    auth_free(auth);
}

static void a_proof_is_taken_and_compared_in_constant_time(void **state) {
    struct auth *auth = load("0123456789abcdef", 16);
    uint8_t client[PREFACE_HELLO_SIZE], server[PREFACE_HELLO_SIZE], proof[32];
    unsigned int before = compared;

    (void)state;
    make_hellos(client, server);
    assert_int_equal(auth_prove(auth, AUTH_CLIENT, client, server, proof), MC_OK);
    assert_true(auth_check(auth, AUTH_CLIENT, client, server, proof));
    for (size_t bit = 0; bit < 256; bit++) {
        proof[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(auth_check(auth, AUTH_CLIENT, client, server, proof));
        proof[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(compared, before + 257);
    auth_free(auth);
}

static void another_key_makes_another_proof(void **state) {
    struct auth *auth = load("0123456789abcdef", 16);
    struct auth *other = load("0123456789abcdeF", 16);
    uint8_t client[PREFACE_HELLO_SIZE], server[PREFACE_HELLO_SIZE], proof[32];

    (void)state;
    make_hellos(client, server);
    assert_int_equal(auth_prove(other, AUTH_SERVER, client, server, proof), MC_OK);
    assert_true(auth_check(other, AUTH_SERVER, client, server, proof));
    assert_false(auth_check(auth, AUTH_SERVER, client, server, proof));
    auth_free(auth);
    auth_free(other);
}

static void a_proof_is_worth_nothing_in_the_other_role_or_with_other_hellos(void **state) {
    struct auth *auth = load("0123456789abcdef", 16);
    uint8_t client[PREFACE_HELLO_SIZE], server[PREFACE_HELLO_SIZE], proof[32];

    (void)state;
    make_hellos(client, server);
    assert_int_equal(auth_prove(auth, AUTH_CLIENT, client, server, proof), MC_OK);
    assert_false(auth_check(auth, AUTH_SERVER, client, server, proof));
    assert_false(auth_check(auth, AUTH_CLIENT, server, client, proof));
    assert_false(auth_check(auth, AUTH_SERVER, server, client, proof));
    for (size_t at = 0; at < PREFACE_HELLO_SIZE; at++) {
        client[at] ^= 1;
        assert_false(auth_check(auth, AUTH_CLIENT, client, server, proof));
        client[at] ^= 1;
        server[at] ^= 1;
        assert_false(auth_check(auth, AUTH_CLIENT, client, server, proof));
        server[at] ^= 1;
    }
    auth_free(auth);
}

static void without_a_key_the_proof_is_zeros_and_nothing_else_is_taken(void **state) {
    struct auth *auth = load("0123456789abcdef", 16);
    uint8_t client[PREFACE_HELLO_SIZE], server[PREFACE_HELLO_SIZE], proof[32];

    (void)state;
    make_hellos(client, server);
    memset(proof, 0xff, sizeof(proof));
    assert_int_equal(auth_prove(NULL, AUTH_CLIENT, client, server, proof), MC_OK);
    for (size_t i = 0; i < 32; i++)
        assert_int_equal(proof[i], 0);
    assert_true(auth_check(NULL, AUTH_CLIENT, client, server, proof));
    assert_false(auth_check(auth, AUTH_CLIENT, client, server, proof));
    for (size_t bit = 0; bit < 256; bit++) {
        proof[bit / 8] = (uint8_t)(1u << bit % 8);
        assert_false(auth_check(NULL, AUTH_CLIENT, client, server, proof));
        proof[bit / 8] = 0;
    }
    assert_int_equal(auth_prove(auth, AUTH_CLIENT, client, server, proof), MC_OK);
    assert_false(auth_check(NULL, AUTH_CLIENT, client, server, proof));
    auth_free(auth);
}

static void random_bytes_differ_and_fill_the_whole_length(void **state) {
    uint8_t one[1024] = {0}, other[1024] = {0};
    size_t zeros = 0;

    (void)state;
    assert_int_equal(auth_random(one, sizeof(one)), MC_OK);
    assert_int_equal(auth_random(other, sizeof(other)), MC_OK);
    assert_memory_not_equal(one, other, 16);
    for (size_t i = sizeof(one) - 16; i < sizeof(one); i++)
        zeros += one[i] == 0;
    assert_true(zeros < 16);
    assert_int_equal(auth_random(NULL, 0), MC_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_of_any_length_but_those_allowed_is_refused),
        cmocka_unit_test(a_key_file_that_is_not_there_is_a_system_error_with_its_path),
        cmocka_unit_test(a_directory_or_a_fifo_is_no_key_file),
        cmocka_unit_test(one_newline_at_the_end_is_not_part_of_the_key),
        cmocka_unit_test(no_path_is_no_key),
        cmocka_unit_test(a_key_without_libcrypto_is_not_supported_and_says_why),
        cmocka_unit_test(macs_are_those_of_rfc_4231),
        cmocka_unit_test(the_worked_example_of_the_protocol_page_is_right),
        cmocka_unit_test(a_proof_is_taken_and_compared_in_constant_time),
        cmocka_unit_test(another_key_makes_another_proof),
        cmocka_unit_test(a_proof_is_worth_nothing_in_the_other_role_or_with_other_hellos),
        cmocka_unit_test(without_a_key_the_proof_is_zeros_and_nothing_else_is_taken),
        cmocka_unit_test(random_bytes_differ_and_fill_the_whole_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
