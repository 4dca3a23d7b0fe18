/* fixture_foo.c - a library that one fixture needs and nobody finds at run time. */
int gdn_test_foo(void);
__attribute__((visibility("default"))) int gdn_test_foo(void) {
    return 0;
}
