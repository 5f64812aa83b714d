package batch

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func seeds() [][]byte {
	var out [][]byte
	for _, codec := range codecs {
		out = append(out, sample(codec, BuilderOptions{}), benchBatch(codec, 2<<10),
			build(codec, BuilderOptions{ProducerID: 9, Transactional: true, RawSnappy: true}, []Record{{Value: make([]byte, 3000)}}))
	}
	return append(out, NewBuilder(None, BuilderOptions{}).Bytes())
}

// FuzzBatch gives arbitrary bytes to everything that reads batches.
func FuzzBatch(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, repair bool) {
		b = bytes.Clone(b)
		if repair && len(b) >= HeaderLen { // reach what is behind the checksum
			b[magicAt] = 2
			binary.BigEndian.PutUint64(b, 0)
			seal(b)
		}
		const limit = 4 << 20
		if h, one, rest, err := Next(b); err == nil && (len(one) != h.Size() || len(one)+len(rest) != len(b)) {
			t.Fatal("Next lost bytes")
		}
		walked := 0
		iterErr := IterateLimit(b, limit, func(r *Record) bool { walked++; return true })
		before := bytes.Clone(b)
		h, err := Validate(b, Limits{})
		if err != nil && !bytes.Equal(before, b) {
			t.Fatal("refused batch was changed")
		}
		if err == nil {
			if CheckCRC(b) != nil {
				t.Fatal("accepted batch without a right CRC")
			}
			if h.Codec() == None && (iterErr != nil || walked != int(h.RecordCount)) {
				t.Fatalf("accepted, but walked %d of %d: %v", walked, h.RecordCount, iterErr)
			}
		}
		if iterErr != nil {
			return
		}
		off, ts, err := MaxTimestamp(b)
		if err != nil {
			t.Fatalf("iterates, but has no max timestamp: %v", err)
		}
		got, _, ok, err := FirstAtOrAfter(b, ts, off)
		if err != nil || walked > 0 && ts <= h.MaxTimestamp && h.Size() == len(b) && h.Codec() == None && (!ok || got > off) {
			t.Fatalf("max timestamp %d at %d, lookup gave %d %v %v", ts, off, got, ok, err)
		}
	})
}

// FuzzDecompress gives arbitrary compressed bytes to each codec.
func FuzzDecompress(f *testing.F) {
	for _, s := range seeds() {
		h, err := ParseHeader(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(h.Codec()), s[HeaderLen:])
	}
	f.Fuzz(func(t *testing.T, codec uint8, src []byte) {
		const limit = 2 << 20
		s, err := openStream(Codec(codec%8), src, limit)
		if err != nil {
			return
		}
		defer s.close()
		total := 0
		for {
			b, err := s.peek(1000)
			if err != nil || len(b) == 0 {
				break
			}
			total += len(b)
			s.skip(len(b))
		}
		if total > limit {
			t.Fatalf("%d bytes came through", total)
		}
	})
}
