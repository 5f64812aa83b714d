package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyControlledShutdown = 7
	keyApiVersions        = 18
)

// flexFrom is, by API key, the first version with tagged fields and compact strings;
// -1 for keys that do not exist. Built once from kmsg.
var flexFrom = func() []int16 {
	t := make([]int16, kmsg.MaxKey+1)
	for key := range t {
		t[key] = -1
		r := kmsg.RequestForKey(int16(key))
		if r == nil {
			continue
		}
		t[key] = 1<<15 - 1
		for v := int16(0); v <= r.MaxVersion()+1; v++ {
			r.SetVersion(v)
			if r.IsFlexible() {
				t[key] = v
				break
			}
		}
	}
	return t
}()

// Known says whether an API of this key exists in Kafka.
func Known(key int16) bool {
	return key >= 0 && int(key) < len(flexFrom) && flexFrom[key] >= 0
}

// Flexible says whether requests of this API and version are of the flexible kind (KIP-482):
// request header version 2 and, ApiVersions excepted, response header version 1.
func Flexible(key, version int16) bool {
	return Known(key) && version >= flexFrom[key]
}

// header is a decoded request header, version 0 to 2.
type header struct {
	key, version int16
	correlation  int32
	clientID     []byte // slice of the frame, nil when null
	body         []byte
}

// minFrame is the size of the shortest request header.
const minFrame = 8

// parseHeader decodes the request header of a frame (without its size field).
func parseHeader(frame []byte) (header, error) {
	w := wire{b: frame}
	h := header{key: w.int16(), version: w.int16(), correlation: w.int32()}
	if w.err != nil {
		return h, w.err
	}
	if !Known(h.key) {
		return h, fmt.Errorf("unknown API key %d", h.key)
	}
	if h.version < 0 {
		return h, fmt.Errorf("negative version %d of API key %d", h.version, h.key)
	}
	if h.key == keyControlledShutdown && h.version == 0 {
		h.body = frame[w.off:] // header version 0
		return h, nil
	}
	h.clientID, _ = w.nullStr() // never compact, in no header version
	if Flexible(h.key, h.version) {
		w.flex = true
		w.tags(nil)
	}
	h.body = frame[w.off:]
	return h, w.err
}

// responseTagged says whether the response header ends with a tagged-field section.
// ApiVersions answers with header version 0 always: its clients do not know yet what the
// broker understands.
func responseTagged(key, version int16) bool {
	return key != keyApiVersions && Flexible(key, version)
}
