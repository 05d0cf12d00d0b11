/* test_gguf.h: Falcon's tokenizer out of its vocabulary in GGUF. */
#ifndef TEST_GGUF_H
#define TEST_GGUF_H

#include <ssmscope/tokenizer.h>

/* The pipeline of Falcon around the tokens and merges of data/tokenizers/falcon/vocab.gguf in the
 * handed data; tools/gguf_vocab.py does the same. NULL, with a line on stdout, where the file is
 * absent. Fails the test when it is not as expected. Owner: the caller. */
ssm_tokenizer *test_falcon_tokenizer(void);

#endif
