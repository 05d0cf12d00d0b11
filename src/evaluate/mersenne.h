/* evaluate/mersenne.h: the generator of Python's random module (MT19937, Matsumoto and Nishimura,
 * ACM TOMACS 8, 1998), for resamples that must be those of a Python program. */
#ifndef SSM_EVALUATE_MERSENNE_H
#define SSM_EVALUATE_MERSENNE_H

#include <stdint.h>

enum { SSM__MERSENNE_WORDS = 624 };

typedef struct ssm__mersenne {
    uint32_t words[SSM__MERSENNE_WORDS];
    int next;
} ssm__mersenne;

/* random.seed(seed). */
void ssm__mersenne_seed(ssm__mersenne *generator, uint32_t seed);
uint32_t ssm__mersenne_u32(ssm__mersenne *generator);
/* random.random(): 53 bits in [0, 1). */
double ssm__mersenne_uniform(ssm__mersenne *generator);

#endif
