package tier

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/tierbroker/tierbroker/frame"
)

// FlagNoAborted says that no transaction in the object was aborted: readers need not look for the section.
const FlagNoAborted = "no-aborted-transactions"

// FlagSparse says that offsets may be missing between batches (compaction). Without it they are consecutive.
const FlagSparse = "sparse"

// Identity is the section that says what a data object is, so that it can be read, and a head be rebuilt, with nothing else.
// Times are milliseconds since 1970, -1 when unknown.
type Identity struct {
	Format             int           `json:"format"` // of this section: 1
	Cluster            string        `json:"cluster"`
	ClusterIncarnation string        `json:"clusterIncarnation"`
	Topic              string        `json:"topic"`
	TopicID            frame.TopicID `json:"topicId"`
	Partition          int32         `json:"partition"`
	Epoch              int32         `json:"epoch"`    // of the owner who wrote it
	Start              int64         `json:"start"`    // the object serves [Start, End)
	End                int64         `json:"end"`      //
	Base               int64         `json:"base"`     // first offset of the first batch; below Start when records were deleted inside it
	LogStart           int64         `json:"logStart"` // the partition's start when the object was written
	Epochs             []EpochRange  `json:"epochs"`   // of the batches inside
	History            []EpochStart  `json:"history"`  // of the partition when the object was written
	Batches            int64         `json:"batches"`
	Records            int64         `json:"records"`
	Bytes              int64         `json:"bytes"` // of all batches
	MinTimestamp       int64         `json:"minTimestamp"`
	MaxTimestamp       int64         `json:"maxTimestamp"`
	MinAppendTime      int64         `json:"minAppendTime"`
	MaxAppendTime      int64         `json:"maxAppendTime"`
	RetentionTime      int64         `json:"retentionTime"` // largest timestamp, where one later than its batch's append time counts as that
	Created            int64         `json:"created"`
	Flags              []string      `json:"flags,omitempty"`
}

// ID returns the partition the object belongs to.
func (i *Identity) ID() frame.PartitionID {
	return frame.PartitionID{Topic: i.TopicID, Partition: i.Partition}
}

// EpochRange says which epoch the batches of [Start, End) carry.
type EpochRange struct {
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

const (
	identityFormat = 1
	maxIdentity    = 16 << 20
	maxJSONDepth   = 16
	maxJSONItems   = 1 << 17
)

func (i *Identity) encode() ([]byte, error) {
	b, err := json.Marshal(i)
	if err != nil {
		return nil, fmt.Errorf("encode identity: %w", err)
	}
	if len(b) > maxIdentity {
		return nil, fmt.Errorf("encode identity of %d bytes: %w", len(b), ErrTooLarge)
	}
	return b, nil
}

func decodeIdentity(b []byte) (Identity, error) {
	var i Identity
	if len(b) > maxIdentity {
		return i, corrupt("identity", "%d bytes, at most %d are allowed", len(b), maxIdentity)
	}
	if err := decodeJSON(b, &i); err != nil {
		return i, corrupt("identity", "%v", err)
	}
	if i.Format != identityFormat {
		return i, featureError("identity format", uint64(max(i.Format, 0)))
	}
	if i.Base < 0 || i.Base > i.Start || i.Start >= i.End || i.End == math.MaxInt64 || i.Partition < 0 || i.Epoch < 0 || i.Bytes < 0 || i.Records < 0 {
		return i, corrupt("identity", "its numbers contradict each other")
	}
	return i, nil
}

func featureError(what string, v uint64) error { return fmt.Errorf("%s %d: %w", what, v, ErrFeature) }

// decodeJSON decodes b after it has counted what the arrays in it hold, because "[{},{},..." makes a decoder allocate a
// hundred times what it reads.
func decodeJSON(b []byte, into any) error {
	if err := checkJSON(b); err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// checkJSON limits depth and the number of array elements. It need not notice other faults: the decoder does.
func checkJSON(b []byte) error {
	var array [maxJSONDepth + 1]bool // whether the container at this depth is one
	depth, items := 0, 0
	for i := 0; i < len(b); i++ {
		switch c := b[i]; c {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			if depth++; depth > maxJSONDepth {
				return fmt.Errorf("nested more than %d deep", maxJSONDepth)
			}
			if array[depth] = c == '['; array[depth] {
				items++
			}
		case ']', '}':
			depth = max(depth-1, 0)
		case ',':
			if array[depth] {
				items++
			}
		}
	}
	if items > maxJSONItems {
		return fmt.Errorf("%d array elements, at most %d are allowed", items, maxJSONItems)
	}
	return nil
}
