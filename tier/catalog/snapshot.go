package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// ErrNoSnapshot: the incarnation has no snapshot that can be read.
var ErrNoSnapshot = errors.New("bucket holds no snapshot of topics and settings")

// Snapshot holds the topics and settings of a cluster at one revision.
type Snapshot struct {
	ClusterID   string `json:"clusterId"`
	Incarnation string `json:"incarnation"`
	Revision    int64  `json:"revision"`  // of etcd
	WrittenAt   int64  `json:"writtenAt"` // ms since 1970
	// Digest covers Content; equal digests mean that nothing changed.
	Digest string `json:"digest"`
	// NextProducerID is a lower bound of the ids that were never handed out.
	NextProducerID int64 `json:"nextProducerId"`
	Content
}

// Content is the part of a snapshot whose change makes a new one due.
type Content struct {
	Topics  []Topic                `json:"topics"`            // sorted by name
	Deleted []cluster.DeletedTopic `json:"deleted,omitempty"` // sorted by id
	// Config is by broker id; "default" is for all brokers.
	Config map[string]map[string]string `json:"config,omitempty"`
}

// Topic is one topic as it was created and altered.
type Topic struct {
	Name       string            `json:"name"`
	ID         frame.TopicID     `json:"id"`
	Partitions int32             `json:"partitions"`
	Configs    map[string]string `json:"configs,omitempty"`
	Internal   bool              `json:"internal,omitempty"`
	Deleting   bool              `json:"deleting,omitempty"`
	CreatedAt  int64             `json:"createdAt"` // ms since 1970
	Version    int64             `json:"version"`
}

// FromImage makes a snapshot of an image.
func FromImage(img *cluster.Image, now int64) (*Snapshot, error) {
	s := &Snapshot{ClusterID: img.ClusterID(), Incarnation: img.Meta().Incarnation, Revision: img.Revision(),
		WrittenAt: now, NextProducerID: img.NextProducerID()}
	s.Topics = make([]Topic, 0, len(img.Topics()))
	for _, t := range img.Topics() {
		s.Topics = append(s.Topics, Topic{Name: t.Name, ID: t.ID, Partitions: t.Partitions, Configs: t.Overrides,
			Internal: t.Internal, Deleting: t.Deleting, CreatedAt: t.CreatedAt, Version: t.Version})
	}
	for _, d := range img.Deleted() {
		s.Deleted = append(s.Deleted, *d)
	}
	for id, m := range img.BrokerConfigs() {
		if s.Config == nil {
			s.Config = map[string]map[string]string{}
		}
		name := strconv.Itoa(int(id))
		if id == cluster.DefaultConfig {
			name = "default"
		}
		s.Config[name] = m
	}
	var err error
	s.Digest, err = s.digest()
	return s, err
}

func (c *Content) digest() (string, error) {
	b, err := json.Marshal(c) // maps are written in the order of their keys
	if err != nil {
		return "", fmt.Errorf("digest of catalog snapshot: %w", err)
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:16]), nil
}

// Encode returns the snapshot's object.
func (s *Snapshot) Encode() ([]byte, error) { return encode(kindSnapshot, s) }

// DecodeSnapshot reads a snapshot's object and checks what a restore relies on:
// names and numbers of topics, no name and no id twice.
func DecodeSnapshot(b []byte) (*Snapshot, error) {
	var s Snapshot
	if err := decode(kindSnapshot, b, &s); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("snapshot: %w: %w", ErrCorrupt, err)
	}
	return &s, nil
}

func (s *Snapshot) check() error {
	if !idPattern.MatchString(s.ClusterID) || !idPattern.MatchString(s.Incarnation) || s.Revision < 0 || s.NextProducerID < 0 {
		return errors.New("cluster id, incarnation, revision or producer id is wrong")
	}
	names := make(map[string]bool, len(s.Topics))
	ids := make(map[frame.TopicID]bool, len(s.Topics))
	for i := range s.Topics {
		t := &s.Topics[i]
		if err := cluster.ValidTopicName(t.Name); err != nil {
			return err
		}
		if t.Partitions < 1 || t.Partitions > cluster.MaxPartitionsPerTopic || t.ID.IsZero() || names[t.Name] || ids[t.ID] {
			return fmt.Errorf("topic %s: %d partitions, id %s", t.Name, t.Partitions, t.ID)
		}
		names[t.Name], ids[t.ID] = true, true
	}
	return nil
}

// SnapshotKey is the key of the snapshot of an incarnation at a revision. Keys of
// later revisions sort after those of earlier ones.
func SnapshotKey(incarnation string, revision int64) string {
	return fmt.Sprintf("cluster/%s/%019d", incarnation, revision)
}

// Revisions returns the revisions of which an incarnation has snapshots, oldest
// first. Keys of another form are ignored.
func Revisions(ctx context.Context, b bucket.Bucket, op bucket.Op, incarnation string) ([]int64, error) {
	prefix := "cluster/" + incarnation + "/"
	var list []int64
	for after := ""; ; {
		page, err := b.List(ctx, op, prefix, after, bucket.MaxList)
		if err != nil {
			return nil, fmt.Errorf("list catalog snapshots: %w", err)
		}
		for _, it := range page.Items {
			rev, err := strconv.ParseInt(strings.TrimPrefix(it.Key, prefix), 10, 64)
			if err == nil && it.Key == SnapshotKey(incarnation, rev) {
				list = append(list, rev)
			}
		}
		if page.Next == "" {
			return list, nil
		}
		after = page.Next
	}
}

// ReadSnapshot returns the snapshot of a revision.
func ReadSnapshot(ctx context.Context, b bucket.Bucket, op bucket.Op, incarnation string, revision int64) (*Snapshot, error) {
	key := SnapshotKey(incarnation, revision)
	raw, _, err := bucket.GetAll(ctx, b, op, key, MaxObject)
	if err != nil {
		return nil, fmt.Errorf("read catalog snapshot: %w", err)
	}
	s, err := DecodeSnapshot(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if s.Incarnation != incarnation || s.Revision != revision {
		return nil, fmt.Errorf("%s: %w: it is of incarnation %s, revision %d", key, ErrCorrupt, s.Incarnation, s.Revision)
	}
	return s, nil
}

// Latest returns the newest snapshot of an incarnation that can be read; damaged
// holds the faults of newer ones that can not. ErrNoSnapshot: there is none.
func Latest(ctx context.Context, b bucket.Bucket, op bucket.Op, incarnation string) (s *Snapshot, damaged []error, err error) {
	revisions, err := Revisions(ctx, b, op, incarnation)
	if err != nil {
		return nil, nil, err
	}
	for _, rev := range slices.Backward(revisions) {
		s, err := ReadSnapshot(ctx, b, op, incarnation, rev)
		if err == nil {
			return s, damaged, nil
		}
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, bucket.ErrNotFound) && !errors.Is(err, bucket.ErrCorrupt) {
			return nil, damaged, err
		}
		damaged = append(damaged, err)
	}
	return nil, damaged, ErrNoSnapshot
}

// sameConfigs reports whether two images have the same dynamic settings.
func sameConfigs(a, b *cluster.Image) bool {
	return maps.EqualFunc(a.BrokerConfigs(), b.BrokerConfigs(), func(x, y map[string]string) bool { return maps.Equal(x, y) })
}

// WriteSnapshot sets a snapshot's digest and puts it. One that is there already is fine when it says the same.
func WriteSnapshot(ctx context.Context, b bucket.Bucket, s *Snapshot) error {
	var err error
	if s.Digest, err = s.digest(); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return fmt.Errorf("write catalog snapshot: %w: %w", ErrCorrupt, err)
	}
	raw, err := s.Encode()
	if err != nil {
		return err
	}
	_, err = b.Put(ctx, headOp(), SnapshotKey(s.Incarnation, s.Revision), bucket.BytesBody(raw), bucket.Condition{IfNoneMatch: true})
	if errors.Is(err, bucket.ErrPrecondition) {
		have, rerr := ReadSnapshot(ctx, b, headOp(), s.Incarnation, s.Revision)
		if rerr == nil && have.Digest == s.Digest {
			return nil
		}
		err = errors.Join(err, rerr)
	}
	if err != nil {
		return fmt.Errorf("write catalog snapshot: %w", err)
	}
	return nil
}
