/* SPDX-License-Identifier: BSD-3-Clause */
/* One instruction set's filter: included with FILTER (the function's name) and LANES. The
 * compiler makes the vectors of what the target pragma around the inclusion allows.
 *
 * init_genrand is a serial chain, so CHAINS independent ones hide its latency. Only one
 * output is computed: number OUTPUT of the first block of 624. */

typedef uint32_t FILTER_VECTOR __attribute__((vector_size(LANES * 4)));

/* Writes output number OUTPUT for BATCH seeds. */
static void FILTER(const uint32_t *restrict seeds, uint32_t output, uint32_t *restrict out)
{
	for (unsigned begin = 0; begin < BATCH; begin += CHAINS * LANES) {
		FILTER_VECTOR s[CHAINS], high[CHAINS], low[CHAINS];

		memcpy(s, seeds + begin, sizeof s);
#define STEP(i)                                                                         \
	_Pragma("GCC unroll 8") for (unsigned c = 0; c < CHAINS; c++) s[c] =            \
		(s[c] ^ s[c] >> 30) * 1812433253u + (uint32_t)(i)
		for (uint32_t i = 1; i <= output; i++)
			STEP(i);
		memcpy(high, s, sizeof s);
		STEP(output + 1);
		memcpy(low, s, sizeof s);
		for (uint32_t i = output + 2; i <= output + 397; i++)
			STEP(i);
#undef STEP
		for (unsigned c = 0; c < CHAINS; c++) {
			FILTER_VECTOR y = (high[c] & 0x80000000u) | (low[c] & 0x7fffffffu);
			FILTER_VECTOR x =
				s[c] ^ y >> 1 ^ ((-(low[c] & 1u)) & 0x9908b0dfu);
			x ^= x >> 11;
			x ^= x << 7 & 0x9d2c5680u;
			x ^= x << 15 & 0xefc60000u;
			x ^= x >> 18;
			memcpy(out + begin + c * LANES, &x, sizeof x);
		}
	}
}

#undef FILTER
#undef FILTER_VECTOR
#undef LANES
