package batch

import "encoding/binary"

// Empty returns a batch without records for the offsets from base to last, which must not lie further apart than an int32
// tells. Kafka's log cleaner leaves such batches where all records are gone: consumers move on behind them.
func Empty(base, last int64, epoch int32) []byte {
	b := make([]byte, HeaderLen)
	be := binary.BigEndian
	be.PutUint32(b[8:], HeaderLen-lengthSkew)
	b[magicAt] = 2
	be.PutUint32(b[23:], uint32(last-base))
	for _, at := range []int{27, maxTimeAt, 43} { // no timestamps, no producer
		be.PutUint64(b[at:], ^uint64(0))
	}
	be.PutUint16(b[51:], ^uint16(0))
	be.PutUint32(b[53:], ^uint32(0))
	Stamp(b, base, epoch)
	be.PutUint32(b[crcAt:], CRC(b))
	return b
}
