package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierbroker/tierbroker/frame"
)

// CheckTopic checks a topic before it is created, as a dry run does: name,
// settings, number of partitions, and that no topic has the name or one that
// collides with it. The errors are those of CreateTopic.
func (c *Client) CheckTopic(spec TopicSpec) error {
	if err := c.checkSpec(spec); err != nil {
		return err
	}
	return c.Image().nameFree(spec.Name)
}

// nameFree looks for a topic of this name, or of one that differs in '.' and '_'
// only. A topic being deleted still holds its name.
func (i *Image) nameFree(name string) error {
	if i.TopicByName(name) != nil {
		return nameTaken(name, name)
	}
	folded := foldName(name)
	for _, t := range i.Topics() {
		if foldName(t.Name) == folded {
			return nameTaken(name, t.Name)
		}
	}
	return nil
}

func nameTaken(name, by string) error {
	if name == by {
		return fmt.Errorf("%w: Topic '%s' already exists.", ErrTopicExists, name) //nolint:staticcheck // Kafka's words
	}
	return fmt.Errorf("%w: Topic '%s' collides with existing topic: %s", ErrTopicCollision, name, by)
}

func (c *Client) checkSpec(spec TopicSpec) error {
	if err := ValidTopicName(spec.Name); err != nil {
		return err
	}
	if spec.Partitions < 1 || spec.Partitions > MaxPartitionsPerTopic {
		return fmt.Errorf("%w: %d, want 1 to %d", ErrInvalidPartitions, spec.Partitions, MaxPartitionsPerTopic)
	}
	_, err := ParseTopicConfig(spec.Configs, c.Image().BrokerDefaults())
	return err
}

// CreateTopic makes a topic; the controller places its partitions afterwards.
// Errors: ErrInvalidTopicName, ErrInvalidPartitions, *ConfigError, ErrTopicExists,
// ErrTopicCollision, ErrUnavailable (it may have been made then).
func (c *Client) CreateTopic(ctx context.Context, spec TopicSpec) (*Topic, error) {
	if err := c.checkSpec(spec); err != nil {
		return nil, err
	}
	if err := c.room(); err != nil {
		return nil, fmt.Errorf("create topic %s: %w", spec.Name, err)
	}
	id := spec.ID
	for id.IsZero() || spec.ID.IsZero() && id.String()[0] == '-' {
		id = frame.TopicID(uuid.New()) // no leading dash: it looks like a flag to tools
	}
	t := &Topic{Name: spec.Name, ID: id, Partitions: spec.Partitions, Overrides: spec.Configs,
		Internal: spec.Internal, CreatedAt: c.o.Now(), Version: 1}
	value, err := encodeRecord(t.record())
	if err != nil {
		return nil, err
	}
	name, err := encodeRecord(nameRecord{ID: id, Name: spec.Name})
	if err != nil {
		return nil, err
	}
	nameKey, topicKey := c.keys.name(spec.Name), c.keys.topic(id)
	r, err := c.retryTxn(ctx, "create topic "+spec.Name,
		[]clientv3.Cmp{
			clientv3.Compare(clientv3.CreateRevision(nameKey), "=", 0),
			clientv3.Compare(clientv3.CreateRevision(topicKey), "=", 0),
			clientv3.Compare(clientv3.CreateRevision(c.keys.deleted(id)), "=", 0), // ids are never used twice
		},
		[]clientv3.Op{clientv3.OpPut(nameKey, name), clientv3.OpPut(topicKey, value)},
		[]clientv3.Op{clientv3.OpGet(nameKey), clientv3.OpGet(topicKey)})
	if err != nil {
		return nil, err
	}
	t.Revision = r.Header.Revision
	if !r.Succeeded {
		if t.Revision, err = c.createdBefore(r, t); err != nil {
			return nil, err
		}
	}
	t.configure(c.Image().BrokerDefaults())
	c.seen(ctx, t.Revision)
	return t, nil
}

// createdBefore decides after a lost comparison: by an attempt of this call whose
// answer was lost (its random id tells), or by somebody else.
func (c *Client) createdBefore(r *clientv3.TxnResponse, t *Topic) (int64, error) {
	names := r.Responses[0].GetResponseRange().Kvs
	if len(names) == 0 {
		return 0, fmt.Errorf("%w: topic id %s was used before", ErrTopicExists, t.ID)
	}
	var n nameRecord
	if err := decodeRecord(names[0].Value, &n); err != nil {
		return 0, &CorruptError{Key: c.keys.name(t.Name), Hint: err.Error()}
	}
	topics := r.Responses[1].GetResponseRange().Kvs
	if n.ID == t.ID && n.Name == t.Name && len(topics) == 1 && topics[0].ModRevision == names[0].ModRevision {
		return names[0].ModRevision, nil
	}
	return 0, nameTaken(t.Name, n.Name)
}

// DeleteTopic marks a topic as being deleted: its owners stop writing, put
// tombstones in place of heads and report Deleted; then the controller frees the
// name. Deleting twice is fine.
func (c *Client) DeleteTopic(ctx context.Context, id frame.TopicID) error {
	_, err := c.editTopic(ctx, "delete topic", id, func(t *Topic) (bool, error) {
		if t.Deleting {
			return false, nil
		}
		t.Deleting, t.DeletedAt = true, c.o.Now()
		return true, nil
	})
	return err
}

// CreatePartitions raises the number of a topic's partitions to n. Errors:
// ErrInvalidPartitions when n is not higher (or too high), ErrUnknownTopic,
// ErrTopicDeleting.
func (c *Client) CreatePartitions(ctx context.Context, id frame.TopicID, n int32) (*Topic, error) {
	return c.editTopic(ctx, "create partitions", id, func(t *Topic) (bool, error) {
		switch {
		case t.Deleting:
			return false, ErrTopicDeleting
		case n > MaxPartitionsPerTopic:
			return false, fmt.Errorf("%w: %d, at most %d are possible", ErrInvalidPartitions, n, MaxPartitionsPerTopic)
		case n < t.Partitions:
			return false, fmt.Errorf("%w: The topic %s currently has %d partition(s); %d would not be an increase.",
				ErrInvalidPartitions, t.Name, t.Partitions, n) //nolint:staticcheck // Kafka's words
		case n == t.Partitions:
			return false, fmt.Errorf("%w: Topic already has %d partition(s).", ErrInvalidPartitions, n) //nolint:staticcheck // Kafka's words
		}
		t.Partitions = n
		return true, c.room()
	})
}

// AlterTopicConfig changes a topic's settings. With replace, settings that no
// operation names are dropped (the old AlterConfigs). Errors: *ConfigError,
// ErrUnknownTopic, ErrTopicDeleting.
func (c *Client) AlterTopicConfig(ctx context.Context, id frame.TopicID, ops []ConfigOp, replace bool) (*Topic, error) {
	return c.editTopic(ctx, "alter topic settings", id, func(t *Topic) (bool, error) {
		if t.Deleting {
			return false, ErrTopicDeleting
		}
		next, err := ApplyTopicConfigOps(t.Overrides, ops, replace, c.Image().BrokerDefaults())
		if err != nil {
			return false, err
		}
		t.Overrides = next
		return true, c.room()
	})
}

// editTopic changes a topic's record by compare-and-swap; change works on a copy
// and says whether there is something to write.
func (c *Client) editTopic(ctx context.Context, verb string, id frame.TopicID, change func(*Topic) (bool, error)) (*Topic, error) {
	key := c.keys.topic(id)
	for range maxAttempts {
		g, err := c.get(ctx, verb, key)
		if err != nil {
			return nil, err
		}
		if len(g.Kvs) == 0 {
			return nil, fmt.Errorf("%s %s: %w", verb, id, ErrUnknownTopic)
		}
		t, err := decodeTopic(id, g.Kvs[0].ModRevision, g.Kvs[0].Value)
		if err != nil {
			return nil, &CorruptError{Key: key, Hint: err.Error()}
		}
		revision := t.Revision
		write, err := change(t)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", verb, t.Name, err)
		}
		if !write {
			t.configure(c.Image().BrokerDefaults())
			return t, nil
		}
		t.Version++
		value, err := encodeRecord(t.record())
		if err != nil {
			return nil, err
		}
		r, err := c.txn(ctx, verb, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
			[]clientv3.Op{clientv3.OpPut(key, value)}, nil)
		if err != nil {
			return nil, err
		}
		if r.Succeeded {
			t.Revision = r.Header.Revision
			t.configure(c.Image().BrokerDefaults())
			c.seen(ctx, t.Revision)
			return t, nil
		}
	}
	return nil, fmt.Errorf("%s %s: %w", verb, id, ErrConflict)
}

// FreeName ends the deletion of a topic whose partitions all are Deleted (or were
// never started): assignments and name go, and the topic is listed in
// Image.Deleted until FinishDelete. ErrConflict: a partition is not ready.
func (t *Term) FreeName(ctx context.Context, id frame.TopicID) error {
	if err := t.barrier(ctx); err != nil {
		return err
	}
	img := t.c.Image()
	topic := img.TopicByID(id)
	if topic == nil {
		return nil
	}
	if !topic.Deleting {
		return fmt.Errorf("free name of %s: it is not being deleted", topic.Name)
	}
	var remove []Change
	for p := range topic.Partitions {
		pid := frame.PartitionID{Topic: id, Partition: p}
		a, ok := img.Assignment(pid)
		if !ok {
			continue
		}
		if !gone(&a) {
			return fmt.Errorf("free name of %s: partition %d is %s: %w", topic.Name, p, a.State, ErrConflict)
		}
		remove = append(remove, Change{ID: pid, Exists: true, Old: a, Remove: true})
	}
	// Shard by shard, since all of a large topic do not fit into one transaction;
	// the record goes last, so that a controller that dies here starts again.
	if err := t.Apply(ctx, remove); err != nil {
		return err
	}
	return t.dropTopic(ctx, topic)
}

// gone reports whether a partition of a deleted topic has nothing left to clean.
func gone(a *Assignment) bool {
	return a.State == Deleted || a.State == Unassigned && a.Epoch == NoEpoch
}

// Gone reports whether a partition of a topic being deleted needs nothing more
// from an owner: it reported Deleted, or was never started.
func (a *Assignment) Gone() bool { return gone(a) }

func (t *Term) dropTopic(ctx context.Context, topic *Topic) error {
	value, err := encodeRecord(DeletedTopic{Name: topic.Name, ID: topic.ID, Partitions: topic.Partitions, DeletedAt: topic.DeletedAt})
	if err != nil {
		return err
	}
	key := t.c.keys.topic(topic.ID)
	r, err := t.c.retryTxn(ctx, "free name of "+topic.Name,
		[]clientv3.Cmp{t.guard(), clientv3.Compare(clientv3.ModRevision(key), "=", topic.Revision)},
		[]clientv3.Op{
			clientv3.OpPut(t.c.keys.deleted(topic.ID), value),
			clientv3.OpDelete(key),
			clientv3.OpDelete(t.c.keys.name(topic.Name)),
		},
		[]clientv3.Op{clientv3.OpGet(t.key), clientv3.OpGet(key)})
	switch {
	case err != nil:
		t.dirty.Store(true)
		return err
	case r.Succeeded:
		_, err = t.c.Wait(ctx, r.Header.Revision-1)
		return err
	case len(r.Responses[0].GetResponseRange().Kvs) == 0:
		return ErrNotLeader
	case len(r.Responses[1].GetResponseRange().Kvs) == 0:
		t.dirty.Store(true) // done by an attempt whose answer was lost
		return nil
	}
	return fmt.Errorf("free name of %s: %w", topic.Name, ErrConflict)
}

// FinishDelete forgets a deleted topic once the bucket holds nothing of it. A
// topic that is unknown or forgotten already is fine.
func (c *Client) FinishDelete(ctx context.Context, id frame.TopicID) error {
	key := c.keys.deleted(id)
	r, err := c.retryTxn(ctx, "finish deletion of "+id.String(),
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), ">", 0)},
		[]clientv3.Op{clientv3.OpDelete(key)}, nil)
	if err != nil || !r.Succeeded {
		return err
	}
	c.seen(ctx, r.Header.Revision)
	return nil
}

// AlterBrokerConfig changes the dynamic settings of a broker, or of all brokers
// with DefaultConfig. The error is a *ConfigError, or ErrUnavailable.
func (c *Client) AlterBrokerConfig(ctx context.Context, broker int32, ops []ConfigOp, replace bool) error {
	if err := c.room(); err != nil {
		return fmt.Errorf("alter broker settings: %w", err)
	}
	key := c.keys.brokerConfig(broker)
	for range maxAttempts {
		g, err := c.get(ctx, "alter broker settings", key)
		if err != nil {
			return err
		}
		var current map[string]string
		revision := int64(0)
		if len(g.Kvs) > 0 {
			revision = g.Kvs[0].ModRevision
			if err := decodeRecord(g.Kvs[0].Value, &current); err != nil {
				return &CorruptError{Key: key, Hint: err.Error()}
			}
		}
		next, err := ApplyBrokerConfigOps(current, ops, replace)
		if err != nil {
			return err
		}
		value, err := encodeRecord(next)
		if err != nil {
			return err
		}
		r, err := c.txn(ctx, "alter broker settings",
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
			[]clientv3.Op{clientv3.OpPut(key, value)}, nil)
		if err != nil {
			return err
		}
		if r.Succeeded {
			c.seen(ctx, r.Header.Revision)
			return nil
		}
	}
	return fmt.Errorf("alter broker settings: %w", ErrConflict)
}

// maxProducerBlock bounds one allocation of producer ids.
const maxProducerBlock = 1 << 20

// AllocateProducerIDs reserves n producer ids that were never handed out and
// returns the first. Ids of an allocation whose answer was lost stay unused.
func (c *Client) AllocateProducerIDs(ctx context.Context, n int) (first int64, err error) {
	if n < 1 || n > maxProducerBlock {
		return 0, fmt.Errorf("allocate %d producer ids: want 1 to %d", n, maxProducerBlock)
	}
	key := c.keys.producers()
	for range maxAttempts {
		g, err := c.get(ctx, "allocate producer ids", key)
		if err != nil {
			return 0, err
		}
		revision := int64(0)
		first = 0
		if len(g.Kvs) > 0 {
			revision = g.Kvs[0].ModRevision
			if first, err = strconv.ParseInt(string(g.Kvs[0].Value), 10, 64); err != nil || first < 0 {
				return 0, &CorruptError{Key: key, Hint: "not a number"}
			}
		}
		next := first + int64(n)
		if next < first {
			return 0, errors.New("allocate producer ids: none are left")
		}
		r, err := c.txn(ctx, "allocate producer ids",
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
			[]clientv3.Op{clientv3.OpPut(key, strconv.FormatInt(next, 10))}, nil)
		if err != nil {
			return 0, err
		}
		if r.Succeeded {
			return first, nil
		}
	}
	return 0, fmt.Errorf("allocate producer ids: %w", ErrConflict)
}
