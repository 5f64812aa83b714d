package tier

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func TestCombineCRC(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := make([]byte, rapid.IntRange(0, 100_000).Draw(t, "bytes"))
		rand.NewChaCha8([32]byte{byte(len(b))}).Read(b)
		cut := rapid.IntRange(0, len(b)).Draw(t, "cut")
		got := combineCRC(checksum(b[:cut]), checksum(b[cut:]), int64(len(b)-cut))
		if want := checksum(b); got != want {
			t.Fatalf("%08x, want %08x", got, want)
		}
	})
}

func TestCombineLongCRC(t *testing.T) {
	const long = 64 << 20
	zeros := make([]byte, 1<<20)
	first, sum := checksum([]byte("a")), checksum([]byte("a"))
	var rest uint32
	for range long / len(zeros) {
		sum = crc32.Update(sum, castagnoli, zeros)
		rest = crc32.Update(rest, castagnoli, zeros)
	}
	if got := combineCRC(first, rest, long); got != sum {
		t.Fatalf("%08x, want %08x", got, sum)
	}
}

func BenchmarkCombineCRC(b *testing.B) {
	for b.Loop() {
		combineCRC(0x12345678, 0x9abcdef0, 262_131)
	}
}
