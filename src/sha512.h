/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_SHA512_H
#define CLAIR_SHA512_H

#include <stddef.h>
#include <stdint.h>

/* SHA-512 (FIPS 180-4) of LENGTH bytes: Python seeds its generator from a string with it. */
void clair_sha512(const void *data, size_t length, uint8_t digest[64]);

#endif
