/* Keeps the support library linkable when it has no other source. */
typedef int ssm__test_support_is_not_empty;
