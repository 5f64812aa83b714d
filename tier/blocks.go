package tier

import (
	"encoding/binary"
	"math"

	"github.com/tierbroker/tierbroker/varint"
)

// Block is an entry of the block table: a piece of the object that holds whole batches and is verified as one.
type Block struct {
	Base, Last   int64  // first and last offset of its batches
	Off          int64  // where its stored bytes begin in the object
	Stored       int64  // bytes in the object
	Plain        int64  // bytes of its batches; equal to Stored when Codec is 0
	CRC          uint32 // CRC32C of the stored bytes
	MaxTimestamp int64  // largest timestamp of its batches
	Records      int64
	Batches      int64
	Codec        uint8  // 0: stored as it is
	KeyID        uint32 // 0: not encrypted
	Nonce        []byte
}

const (
	maxOffset    = math.MaxInt64 - 1 // so that the next offset exists
	maxBlockLen  = 1 << 30
	minBlockLen  = 12 // bytes that the shortest entry of a block table takes
	maxNonce     = 64
	maxTimestamp = math.MaxInt64
)

// appendBlocks encodes a block table.
func appendBlocks(dst []byte, blocks []Block) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(blocks)))
	var next, ts int64
	for _, b := range blocks {
		dst = binary.AppendUvarint(dst, uint64(b.Base-next))
		dst = binary.AppendUvarint(dst, uint64(b.Last-b.Base))
		dst = binary.AppendUvarint(dst, uint64(b.Stored))
		dst = binary.AppendUvarint(dst, uint64(b.Plain))
		dst = binary.BigEndian.AppendUint32(dst, b.CRC)
		dst = binary.AppendVarint(dst, b.MaxTimestamp-ts)
		dst = binary.AppendUvarint(dst, uint64(b.Records))
		dst = binary.AppendUvarint(dst, uint64(b.Batches))
		dst = append(dst, b.Codec)
		dst = binary.AppendUvarint(dst, uint64(b.KeyID))
		dst = binary.AppendUvarint(dst, uint64(len(b.Nonce)))
		dst = append(dst, b.Nonce...)
		next, ts = b.Last+1, b.MaxTimestamp
	}
	return dst
}

// decodeBlocks reads a block table whose blocks fill the object from the end of its magic to end, and checks that their
// offsets rise.
func decodeBlocks(b []byte, end int64) ([]Block, error) {
	d := varint.Read(b)
	n := d.Count(minBlockLen)
	blocks := make([]Block, 0, n)
	off := int64(len(headMagic))
	var next, ts int64
	for i := range n {
		var k Block
		k.Base = next + int64(d.Uvarint(uint64(maxOffset-next)))
		k.Last = k.Base + int64(d.Uvarint(uint64(maxOffset-k.Base)))
		k.Off = off
		k.Stored = int64(d.Uvarint(maxBlockLen))
		k.Plain = int64(d.Uvarint(maxBlockLen))
		k.CRC = d.Uint32()
		k.MaxTimestamp = ts + d.Varint() // wraps as the writer's difference did
		k.Records = int64(d.Uvarint(math.MaxInt64))
		k.Batches = int64(d.Uvarint(maxBlockLen))
		k.Codec = d.Uint8()
		k.KeyID = uint32(d.Uvarint(math.MaxUint32))
		k.Nonce = d.Bytes(int(d.Uvarint(maxNonce)))
		if d.Bad() || k.Stored == 0 || k.Stored > end-off || (k.Codec == 0 && k.Plain != k.Stored) {
			return nil, corrupt("block table", "entry %d of %d is wrong", i, n)
		}
		if k.Codec != 0 || k.KeyID != 0 {
			return nil, featureError("block codec", uint64(k.Codec))
		}
		if len(k.Nonce) == 0 {
			k.Nonce = nil
		}
		next, ts, off = k.Last+1, k.MaxTimestamp, off+k.Stored
		blocks = append(blocks, k)
	}
	if !d.Done() {
		return nil, corrupt("block table", "%d bytes too many, or too few", len(d.Rest()))
	}
	if off != end {
		return nil, corrupt("block table", "blocks end at %d, sections begin at %d", off, end)
	}
	return blocks, nil
}

// IndexEntry is an entry of the offset index: one batch.
type IndexEntry struct {
	Block        int   // number of its block
	Base, Last   int64 // offsets
	Pos          int64 // where it begins in the plain bytes of its block
	Size         int64
	MaxTimestamp int64
}

// indexBuilder encodes an offset index batch by batch. The entries of each block can be read without those before it.
type indexBuilder struct {
	done  []byte // finished blocks
	block []byte // entries of the current block
	n     int    // batches in the current block
	next  int64
	ts    int64
}

func (x *indexBuilder) add(base, last, size, ts int64) {
	x.block = binary.AppendUvarint(x.block, uint64(base-x.next))
	x.block = binary.AppendUvarint(x.block, uint64(last-base))
	x.block = binary.AppendUvarint(x.block, uint64(size))
	x.block = binary.AppendVarint(x.block, ts-x.ts)
	x.next, x.ts, x.n = last+1, ts, x.n+1
}

func (x *indexBuilder) endBlock() {
	x.done = binary.AppendUvarint(x.done, uint64(x.n))
	x.done = binary.AppendUvarint(x.done, uint64(len(x.block)))
	x.done = append(x.done, x.block...)
	x.block, x.n, x.next, x.ts = x.block[:0], 0, 0, 0
}

// walkIndex reads an offset index and calls fn for each batch in order; fn returns false to stop. It checks the index against
// the block table: each block's entries must fill exactly its plain bytes and its offsets.
func walkIndex(b []byte, blocks []Block, fn func(IndexEntry) bool) error {
	d := varint.Read(b)
	for i := range blocks {
		k := &blocks[i]
		n := d.Uvarint(uint64(len(d.Rest())))
		e := varint.Read(d.Prefixed())
		var next, pos, ts int64
		for range n {
			var x IndexEntry
			x.Block, x.Pos = i, pos
			x.Base = next + int64(e.Uvarint(uint64(maxOffset-next)))
			x.Last = x.Base + int64(e.Uvarint(uint64(maxOffset-x.Base)))
			x.Size = int64(e.Uvarint(maxBlockLen))
			x.MaxTimestamp = ts + e.Varint()
			next, pos, ts = x.Last+1, pos+x.Size, x.MaxTimestamp
			if e.Bad() || x.Size == 0 || x.Base < k.Base || x.Last > k.Last || pos > k.Plain {
				return corrupt("offset index", "entries of block %d are wrong", i)
			}
			if !fn(x) {
				return nil
			}
		}
		if d.Bad() || !e.Done() || pos != k.Plain || next != k.Last+1 {
			return corrupt("offset index", "entries of block %d don't fill it", i)
		}
	}
	if !d.Done() {
		return corrupt("offset index", "%d bytes too many", len(d.Rest()))
	}
	return nil
}

// AbortedTxn is an entry of the aborted-transactions section, as Kafka's transaction index has it.
type AbortedTxn struct {
	ProducerID       int64
	First, Last      int64 // offsets of the first record and of the abort marker
	LastStableOffset int64
}

func appendAborted(dst []byte, txns []AbortedTxn) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(txns)))
	for _, t := range txns {
		dst = binary.AppendVarint(dst, t.ProducerID)
		dst = binary.AppendVarint(dst, t.First)
		dst = binary.AppendVarint(dst, t.Last)
		dst = binary.AppendVarint(dst, t.LastStableOffset)
	}
	return dst
}

func decodeAborted(b []byte) ([]AbortedTxn, error) {
	d := varint.Read(b)
	n := d.Count(4)
	txns := make([]AbortedTxn, 0, n)
	for range n {
		txns = append(txns, AbortedTxn{d.Varint(), d.Varint(), d.Varint(), d.Varint()})
	}
	if !d.Done() {
		return nil, corrupt("aborted transactions", "%d entries in %d bytes", n, len(b))
	}
	return txns, nil
}
