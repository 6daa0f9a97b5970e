/* SPDX-License-Identifier: BSD-3-Clause */
/* One instruction set's kernel: included with KERNEL (a prefix of names), LANES, CHAINS. The
 * compiler makes the vectors of what the target pragma around the inclusion allows.
 *
 * init_genrand is a serial chain: a multiplication's latency a step. CHAINS independent
 * ones hide it, so that the multiplier's throughput is the limit. Of the first block of 624
 * words only those are twisted that are asked for. */

#define NAME_(a, b) a##_##b
#define NAME(a, b) NAME_(a, b)
#define VECTOR NAME(KERNEL, vector)
#define SEEDS (CHAINS * LANES)

#ifdef UNPACKED
/* Two seeds in the low halves of 64 bits: SSE2 multiplies no other way. What stands in the
 * high halves does not matter. */
typedef uint32_t VECTOR __attribute__((vector_size(16)));
#define GET(from) ((VECTOR){ (from)[0], 0, (from)[1], 0 })
#define PUT(to, v) ((to)[0] = (v)[0], (to)[1] = (v)[2])
#define TIMES(v, a) ((VECTOR)_mm_mul_epu32((__m128i)(v), _mm_set1_epi64x(a)))
#else
typedef uint32_t VECTOR __attribute__((vector_size(LANES * 4)));
#define GET(from) (*(const struct NAME(KERNEL, loose) *)(const void *)(from)).v
#define PUT(to, x) ((*(struct NAME(KERNEL, loose) *)(void *)(to)).v = (x))
#define TIMES(v, a) ((v) * (uint32_t)(a))
struct NAME(KERNEL, loose) {
	VECTOR v;
} __attribute__((packed, aligned(4), may_alias));
#endif

static inline VECTOR NAME(KERNEL, output)(VECTOR high, VECTOR low, VECTOR far)
{
	VECTOR y = (high & 0x80000000u) | (low & 0x7fffffffu);
	VECTOR x = far ^ y >> 1 ^ ((-(y & 1u)) & 0x9908b0dfu);

	x ^= x >> 11;
	x ^= x << 7 & 0x9d2c5680u;
	x ^= x << 15 & 0xefc60000u;
	return x ^ x >> 18;
}

/* Writes outputs FROM … TO - 1 of SEEDS generators, SEEDS words an output. */
static void NAME(KERNEL, outputs)(const uint32_t *seeds, uint32_t from, uint32_t to,
				  uint32_t *out)
{
	VECTOR s[CHAINS], head[SPAN + 1][CHAINS];
	uint32_t i = 1;

#define EACH _Pragma("GCC unroll 16") for (unsigned c = 0; c < CHAINS; c++)
#define STEP(i) EACH s[c] = TIMES(s[c] ^ s[c] >> 30, 1812433253) + (uint32_t)(i)
	EACH s[c] = GET(seeds + c * LANES);
	for (; i <= from; i++)
		STEP(i);
	EACH head[0][c] = s[c];
	for (; i <= to; i++) {
		STEP(i);
		EACH head[i - from][c] = s[c];
	}
	for (; i < from + 397; i++)
		STEP(i);
	for (; i < to + 397; i++) {
		uint32_t at = i - 397 - from;
		STEP(i);
		EACH {
			VECTOR x = NAME(KERNEL, output)(head[at][c], head[at + 1][c], s[c]);
			PUT(out + at * SEEDS + c * LANES, x);
		}
	}
#undef STEP
#undef EACH
}

#define EACH _Pragma("GCC unroll 16") for (unsigned c = 0; c < PYTHON_CHAINS; c++)
#define MIX(x, a) TIMES((x) ^ (x) >> 30, a)

/* The first PYTHON_OUTPUTS outputs of CPython's Random(seed) for PYTHON_CHAINS * LANES seeds:
 * init_by_array over BASE, init_genrand(19650218), twice serially over all words, which are
 * kept in STATE in between. */
static void NAME(KERNEL, python)(const uint32_t *seeds, const uint32_t *base, void *state,
				 uint32_t *out)
{
	VECTOR(*w)[PYTHON_CHAINS] = state;
	VECTOR s[PYTHON_CHAINS], key[PYTHON_CHAINS], one[PYTHON_CHAINS];

	EACH {
		key[c] = GET(seeds + c * LANES);
		s[c] = key[c] ^ key[c];
		s[c] += base[0];
	}
	for (uint32_t i = 1; i < 624; i++) {
		EACH {
			s[c] = (MIX(s[c], 1664525) ^ base[i]) + key[c];
			w[i][c] = s[c];
		}
	}
	/* The words go round: word 0 is the last one, word 1 comes again. */
	EACH s[c] = (w[1][c] ^ MIX(s[c], 1664525)) + key[c];
	EACH one[c] = s[c];
	for (uint32_t i = 2; i < 624; i++) {
		EACH {
			s[c] = (w[i][c] ^ MIX(s[c], 1566083941)) - i;
			w[i][c] = s[c];
		}
	}
	EACH {
		w[1][c] = (one[c] ^ MIX(s[c], 1566083941)) - 1u;
		w[0][c] = (s[c] ^ s[c]) + 0x80000000u;
	}
	for (uint32_t i = 0; i < PYTHON_OUTPUTS; i++)
		EACH PUT(out + (i * PYTHON_CHAINS + c) * LANES,
			 NAME(KERNEL, output)(w[i][c], w[i + 1][c], w[i + 397][c]));
}

#undef MIX
#undef EACH

/* z = entry + u mod d: the places that an entry is taken from. RECIPROCAL is 2^32 / d, so the
 * quotient is short by one at most. */
static void NAME(KERNEL, places)(const uint32_t *restrict u, uint32_t entry, uint32_t d,
				 uint32_t reciprocal, uint32_t *restrict z)
{
	for (unsigned k = 0; k < SEEDS; k++) {
		uint32_t q = (uint32_t)((uint64_t)u[k] * reciprocal >> 32);
		uint32_t r = u[k] - q * d, less = r - d;
		z[k] = entry + (r < less ? r : less);
	}
}

/* Which sets have the samples Z: TABLE's bytes, after which 3 more may be read. */
static void NAME(KERNEL, lookup)(const uint8_t *restrict table, const uint32_t *restrict z,
				 uint32_t *restrict open)
{
#ifdef GATHER
	for (unsigned k = 0; k < SEEDS; k += LANES) {
		VECTOR at = GET(z + k);
		PUT(open + k, (VECTOR)GATHER(at, table) & 0xffu);
	}
#else
	for (unsigned k = 0; k < SEEDS; k++)
		open[k] = table[z[k]];
#endif
}

/* Opens all sets to the seeds whose place Z was taken before: by an entry with the places
 * BEFORE. */
static void NAME(KERNEL, repeats)(const uint32_t *restrict z,
				  const uint32_t *restrict before, uint32_t *restrict open)
{
	for (unsigned k = 0; k < SEEDS; k++)
		open[k] |= -(uint32_t)(z[k] == before[k]);
}

/* What COUNT rows, STEP words apart, and SLOTS have in common; whether it is anything. */
static bool NAME(KERNEL, common)(const uint32_t *restrict rows, size_t step, unsigned count,
				 uint32_t slots, uint32_t *restrict alive)
{
	uint32_t any = 0;

	for (unsigned k = 0; k < SEEDS; k++)
		alive[k] = rows[k] & slots;
	for (unsigned i = 1; i < count; i++) {
		rows += step;
		for (unsigned k = 0; k < SEEDS; k++)
			alive[k] &= rows[k];
	}
	for (unsigned k = 0; k < SEEDS; k++)
		any |= alive[k];
	return any != 0;
}

static const struct kernel KERNEL = {
	.seeds = SEEDS,
	.outputs = NAME(KERNEL, outputs),
	.places = NAME(KERNEL, places),
	.lookup = NAME(KERNEL, lookup),
	.repeats = NAME(KERNEL, repeats),
	.common = NAME(KERNEL, common),
	.python_seeds = PYTHON_CHAINS * LANES,
	.python_room = 624 * PYTHON_CHAINS * sizeof(VECTOR),
	.python = NAME(KERNEL, python),
};

#undef NAME_
#undef NAME
#undef VECTOR
#undef SEEDS
#undef GET
#undef PUT
#undef TIMES
#undef GATHER
#undef KERNEL
#undef LANES
#undef CHAINS
#undef UNPACKED
