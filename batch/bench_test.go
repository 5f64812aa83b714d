package batch

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkValidate measures what a produce request costs in this package: parse, CRC,
// and the walk over uncompressed records.
func BenchmarkValidate(b *testing.B) {
	for _, codec := range []Codec{None, LZ4} {
		for _, size := range []int{1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
			data := benchBatch(codec, size)
			l := Limits{MaxBytes: 2 << 20, CreateTime: true, Now: 1790000000000, MaxBefore: -1, MaxAfter: time.Hour}
			b.Run(fmt.Sprintf("%s/%dKiB", codec, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Validate(data, l); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkCRC is the floor under BenchmarkValidate.
func BenchmarkCRC(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		data := benchBatch(None, size)
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if err := CheckCRC(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkIterate counts plain bytes.
func BenchmarkIterate(b *testing.B) {
	for _, codec := range codecs {
		data := benchBatch(codec, 256<<10)
		b.Run(codec.String(), func(b *testing.B) {
			b.SetBytes(256 << 10)
			b.ReportAllocs()
			for b.Loop() {
				if err := Iterate(data, func(*Record) bool { return true }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
