package journal

import "encoding/binary"

// markerKind starts the key of a marker, as the kinds of Kafka's records start theirs.
const markerKind = 29762

// Kinds of markers.
const (
	markBegin byte = 1
	markPart  byte = 2
	markEnd   byte = 3
)

// markerKeyLen: int16 29762, uint8 kind, int64 snapshot (ms of its begin), int32 number of the batch within it.
const markerKeyLen = 2 + 1 + 8 + 4

// markerValueLen: int64 records of the snapshot in front of this marker.
const markerValueLen = 8

type marker struct {
	kind     byte
	snapshot int64
	batch    int32
	records  int64
}

func (m marker) record() Record {
	k := make([]byte, 0, markerKeyLen)
	k = binary.BigEndian.AppendUint16(k, markerKind)
	k = append(k, m.kind)
	k = binary.BigEndian.AppendUint64(k, uint64(m.snapshot))
	k = binary.BigEndian.AppendUint32(k, uint32(m.batch))
	return Record{Key: k, Value: binary.BigEndian.AppendUint64(nil, uint64(m.records))}
}

// parseMarker returns false for every record that isn't a marker.
func parseMarker(key, value []byte) (marker, bool) {
	if len(key) != markerKeyLen || len(value) != markerValueLen || binary.BigEndian.Uint16(key) != markerKind {
		return marker{}, false
	}
	m := marker{kind: key[2], snapshot: int64(binary.BigEndian.Uint64(key[3:])), batch: int32(binary.BigEndian.Uint32(key[11:])),
		records: int64(binary.BigEndian.Uint64(value))}
	return m, m.kind >= markBegin && m.kind <= markEnd
}
