package tier

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"

	"github.com/tierbroker/tierbroker/frame"
)

// Folders of the bucket that belong to partitions.
const (
	dataFolder    = "data/"
	headFolder    = "head/"
	pageFolder    = "page/"
	historyFolder = "history/"
	dataSuffix    = ".tbd"
)

// WALFolder is where the objects of WAL streams lie. They hold batches of many partitions, so no partition may delete one.
const WALFolder = "wal/"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// place is the part of a key that all objects of a partition share: "<hash>/<topic id>/<partition>". The hash spreads
// partitions over the store's key space; it is the low 16 bits of CRC32C(topic id, partition as four bytes big-endian).
// The topic id is in hexadecimal, because some directories take "a" and "A" for the same name.
func place(id frame.PartitionID) string {
	var b [20]byte
	copy(b[:16], id.Topic[:])
	binary.BigEndian.PutUint32(b[16:], uint32(id.Partition))
	return fmt.Sprintf("%04x/%x/%d", crc32.Checksum(b[:], castagnoli)&0xffff, id.Topic[:], id.Partition)
}

// HeadKey is the key of the partition's head.
func HeadKey(id frame.PartitionID) string { return headFolder + place(id) }

// DataPrefix is the prefix below which exactly the partition's data objects lie.
func DataPrefix(id frame.PartitionID) string { return dataFolder + place(id) + "/" }

// PagePrefix is the prefix below which exactly the partition's pages lie.
func PagePrefix(id frame.PartitionID) string { return pageFolder + place(id) + "/" }

// HistoryPrefix is the prefix below which exactly the partition's older heads lie.
func HistoryPrefix(id frame.PartitionID) string { return historyFolder + place(id) + "/" }

// HistoryKey is the key of an older head.
func HistoryKey(id frame.PartitionID, version int64) string {
	return HistoryPrefix(id) + fmt.Sprintf("%020d", version)
}

// dataKey returns the key of a new data object. Base offset and epoch have a fixed number of digits, so that keys sort by offset.
func dataKey(id frame.PartitionID, base int64, epoch int32) string {
	return fmt.Sprintf("%s%020d-%010d-%s%s", DataPrefix(id), base, epoch, uid(), dataSuffix)
}

// pageKey returns the key of a new page. It begins with the epoch because the sweep needs to know it.
func pageKey(id frame.PartitionID, epoch int32) string {
	return fmt.Sprintf("%s%010d-%s", PagePrefix(id), epoch, uid())
}

// uid returns 24 random hexadecimal digits.
func uid() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process rather than return an error
	return hex.EncodeToString(b[:])
}

const uidLen = 24

// DataName is what the key of a data object tells.
type DataName struct {
	ID    frame.PartitionID
	Base  int64 // first offset of the range it was uploaded for
	Epoch int32 // epoch of the owner who uploaded it
	UID   string
}

// ParseDataKey reads the key of a data object; ok is false for every other key.
func ParseDataKey(key string) (n DataName, ok bool) {
	id, rest, ok := parsePlace(key, dataFolder)
	if !ok {
		return n, false
	}
	name, ok := strings.CutSuffix(rest, dataSuffix)
	if !ok || len(name) != 20+1+10+1+uidLen || name[20] != '-' || name[31] != '-' || !isHex(name[32:]) {
		return n, false
	}
	base, ok1 := parseDigits(name[:20], math.MaxInt64)
	epoch, ok2 := parseDigits(name[21:31], math.MaxInt32)
	return DataName{ID: id, Base: base, Epoch: int32(epoch), UID: name[32:]}, ok1 && ok2
}

// parsePageKey reads the key of a page and returns the epoch of its writer.
func parsePageKey(key string) (id frame.PartitionID, epoch int32, ok bool) {
	id, name, ok := parsePlace(key, pageFolder)
	if !ok || len(name) != 10+1+uidLen || name[10] != '-' || !isHex(name[11:]) {
		return id, 0, false
	}
	e, ok := parseDigits(name[:10], math.MaxInt32)
	return id, int32(e), ok
}

// parseHistoryKey reads the key of an older head and returns its version.
func parseHistoryKey(key string) (version int64, ok bool) {
	_, name, ok := parsePlace(key, historyFolder)
	if !ok || len(name) != 20 {
		return 0, false
	}
	return parseDigits(name, math.MaxInt64)
}

// ParseHeadKey reads the key of a head; ok is false for every other key.
func ParseHeadKey(key string) (frame.PartitionID, bool) {
	id, rest, ok := parsePlace(key+"/", headFolder)
	return id, ok && rest == ""
}

// parsePlace reads folder and place, and returns what follows the place. The hash must be right, or the key isn't ours.
func parsePlace(key, folder string) (id frame.PartitionID, rest string, ok bool) {
	s, ok := strings.CutPrefix(key, folder)
	if !ok {
		return id, "", false
	}
	parts := strings.SplitN(s, "/", 4)
	if len(parts) != 4 || len(parts[1]) != 32 || !isHex(parts[1]) {
		return id, "", false
	}
	if _, err := hex.Decode(id.Topic[:], []byte(parts[1])); err != nil {
		return id, "", false
	}
	p, err := strconv.ParseInt(parts[2], 10, 32)
	if err != nil || p < 0 {
		return id, "", false
	}
	id.Partition = int32(p)
	return id, parts[3], folder+place(id)+"/"+parts[3] == key
}

func parseDigits(s string, max int64) (int64, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n <= max
}

// isHex reports whether s has lower-case hexadecimal digits only.
func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
