package tier

import "hash/crc32"

// A CRC32C is a remainder, so that of two pieces one after the other follows from those of the pieces and the length of
// the second. Blocks and objects get their checksums that way from the batches', which are in their headers: no byte is
// read or summed up twice.

// directCRC is up to how many bytes summing them up again is cheaper than combining.
const directCRC = 8 << 10

// powers[k] is x^(2^k) modulo the polynomial, in the reflected bit order of crc32.
var powers = func() (p [64]uint32) {
	p[0] = 1 << 30 // x
	for k := 1; k < len(p); k++ {
		p[k] = mulCRC(p[k-1], p[k-1])
	}
	return p
}()

// mulCRC multiplies two polynomials modulo CRC32C's.
func mulCRC(a, b uint32) uint32 {
	var p uint32
	for range 32 {
		p ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return p
}

// combineCRC is the checksum of a piece with checksum a, followed by n bytes with checksum b.
func combineCRC(a, b uint32, n int64) uint32 {
	for k := 3; n > 0; n, k = n>>1, k+1 { // 8 bits to a byte
		if n&1 != 0 {
			a = mulCRC(powers[k], a)
		}
	}
	return a ^ b
}
