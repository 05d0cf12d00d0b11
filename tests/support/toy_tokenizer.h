/* toy_tokenizer.h: tokenizer.json files of a dozen tokens, made in code. */
#ifndef TOY_TOKENIZER_H
#define TOY_TOKENIZER_H

enum { TOY_TOKENIZERS = 3, TOY_TOKENIZER_VOCAB = 16 };

/* kind 0: NFC, ByteLevel with its own pattern, merges as strings, as GPT-NeoX has it. 1: no
 * normalizer, a Sequence of two Splits and ByteLevel, merges as pairs, a template that adds
 * <|end|>. 2: kind 0 with a Sequence of normalizers. Letters a and b, blanks, and some merges of
 * them; every kind has ids below TOY_TOKENIZER_VOCAB. Fails the test when the file cannot be
 * written. */
void toy_tokenizer_write(const char *path, int kind);

#endif
