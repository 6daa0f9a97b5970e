/* SPDX-License-Identifier: BSD-3-Clause */
#include "usual_seeds.h"

const uint64_t clair_usual_seeds[] = {
	0,    42,   1234, 1337, 1,    2,     3,	    7,	    10,	  12, 21, 99, 100, 111,	 123,  2020,  2021,
	2022, 2023, 2024, 2025, 3407, 12345, 31415, 123456, 9176, 5,  8,  11, 13,  17,	 1000, 777,
	999,  4,    6,	  9,	20,   30,    50,    64,	    128,  256, 512, 1024, 2026, 1111, 14,   15,	  16
};
const size_t clair_usual_seed_count = sizeof clair_usual_seeds / sizeof clair_usual_seeds[0];
