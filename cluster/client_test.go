package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
)

func TestTopicLife(t *testing.T) {
	ctx := testContext(t)
	c := startClient(t, startEtcd(t))
	s := register(t, c, 1, "run-1")
	term := lead(t, c, s)

	topic, err := c.CreateTopic(ctx, TopicSpec{Name: "audit.log", Partitions: 3, Configs: map[string]string{RetentionMs: "-1"}})
	require.NoError(t, err)
	require.Equal(t, int64(-1), topic.Config.RetentionMs)
	require.Equal(t, topic.ID, c.Image().TopicByName("audit.log").ID, "the creator sees its topic")

	_, err = c.CreateTopic(ctx, TopicSpec{Name: "audit.log", Partitions: 3})
	require.ErrorIs(t, err, ErrTopicExists)
	_, err = c.CreateTopic(ctx, TopicSpec{Name: "audit_log", Partitions: 3})
	require.ErrorIs(t, err, ErrTopicCollision)
	require.ErrorIs(t, c.CheckTopic(TopicSpec{Name: "audit_log", Partitions: 3}), ErrTopicCollision)
	_, err = c.CreateTopic(ctx, TopicSpec{Name: "no good", Partitions: 3})
	require.ErrorIs(t, err, ErrInvalidTopicName)
	_, err = c.CreateTopic(ctx, TopicSpec{Name: "none"})
	require.ErrorIs(t, err, ErrInvalidPartitions)
	_, err = c.CreateTopic(ctx, TopicSpec{Name: "bad", Partitions: 1, Configs: map[string]string{RetentionMs: "soon"}})
	require.ErrorIs(t, err, ErrInvalidConfig)

	placeAt(t, term, topic, 1, "run-1")
	require.Equal(t, 3, c.Image().NumAssignments())
	require.NoError(t, c.Transition(ctx, moves(topic, 1, "run-1", 0, Starting, Recovering)))
	require.NoError(t, c.Transition(ctx, moves(topic, 1, "run-1", 0, Recovering, Writing)))
	broker, epoch := c.Image().Leader(frame.PartitionID{Topic: topic.ID, Partition: 2})
	require.Equal(t, []int32{1, 0}, []int32{broker, epoch})

	topic, err = c.CreatePartitions(ctx, topic.ID, 5)
	require.NoError(t, err)
	_, err = c.CreatePartitions(ctx, topic.ID, 5)
	require.ErrorIs(t, err, ErrInvalidPartitions)
	require.Equal(t, int32(5), c.Image().TopicByID(topic.ID).Partitions)

	v := "compact"
	topic, err = c.AlterTopicConfig(ctx, topic.ID, []ConfigOp{{Name: CleanupPolicy, Type: OpAppend, Value: v}}, false)
	require.NoError(t, err)
	require.Equal(t, map[string]string{RetentionMs: "-1", CleanupPolicy: "delete,compact"}, topic.Overrides)
	topic, err = c.AlterTopicConfig(ctx, topic.ID, SetConfigs(map[string]*string{CleanupPolicy: &v}), true)
	require.NoError(t, err)
	require.Equal(t, map[string]string{CleanupPolicy: "compact"}, c.Image().TopicByID(topic.ID).Overrides)

	require.NoError(t, c.DeleteTopic(ctx, topic.ID))
	require.NoError(t, c.DeleteTopic(ctx, topic.ID), "twice is fine")
	_, err = c.CreatePartitions(ctx, topic.ID, 9)
	require.ErrorIs(t, err, ErrTopicDeleting)
	require.ErrorIs(t, term.FreeName(ctx, topic.ID), ErrConflict, "owners are not done")
	require.NoError(t, c.Transition(ctx, moves(&Topic{ID: topic.ID, Partitions: 3}, 1, "run-1", 0, Writing, Deleted)))
	require.NoError(t, term.FreeName(ctx, topic.ID))
	require.NoError(t, term.FreeName(ctx, topic.ID), "twice is fine")

	img := c.Image()
	require.Nil(t, img.TopicByName("audit.log"))
	require.Zero(t, img.NumAssignments())
	require.Len(t, img.Deleted(), 1)
	_, err = c.CreateTopic(ctx, TopicSpec{Name: "audit_log", Partitions: 1, ID: topic.ID})
	require.ErrorIs(t, err, ErrTopicExists, "an id is never used twice")
	_, err = c.CreateTopic(ctx, TopicSpec{Name: "audit_log", Partitions: 1})
	require.NoError(t, err, "the name is free")
	require.NoError(t, c.FinishDelete(ctx, topic.ID))
	require.NoError(t, c.FinishDelete(ctx, topic.ID), "twice is fine")
	require.Empty(t, c.Image().Deleted())
	require.ErrorIs(t, c.DeleteTopic(ctx, topic.ID), ErrUnknownTopic)
}

func TestTransitionComparesOwnership(t *testing.T) {
	ctx := testContext(t)
	c := startClient(t, startEtcd(t))
	term := lead(t, c, register(t, c, 1, "run-1"))
	topic, err := c.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 4})
	require.NoError(t, err)
	placeAt(t, term, topic, 1, "run-1")
	id := func(p int32) frame.PartitionID { return frame.PartitionID{Topic: topic.ID, Partition: p} }

	for name, move := range map[string]Transition{
		"owner":       {ID: id(0), Owner: 2, OwnerIncarnation: "run-1", Epoch: 0, From: Starting, To: Writing},
		"incarnation": {ID: id(0), Owner: 1, OwnerIncarnation: "run-0", Epoch: 0, From: Starting, To: Writing},
		"epoch":       {ID: id(0), Owner: 1, OwnerIncarnation: "run-1", Epoch: 1, From: Starting, To: Writing},
		"state":       {ID: id(0), Owner: 1, OwnerIncarnation: "run-1", Epoch: 0, From: Draining, To: Writing},
		"unknown":     {ID: id(9), Owner: 1, OwnerIncarnation: "run-1", Epoch: 0, From: Starting, To: Writing},
	} {
		good := Transition{ID: id(1), Owner: 1, OwnerIncarnation: "run-1", Epoch: 0, From: Starting, To: Recovering}
		err := c.Transition(ctx, []Transition{move, good})
		var fenced *FencedError
		require.True(t, errors.As(err, &fenced), "%s: %v", name, err)
		require.Equal(t, []frame.PartitionID{move.ID}, fenced.Lost, name)
		a, _ := c.Image().Assignment(id(0))
		require.Equal(t, Starting, a.State, name)
		a, _ = c.Image().Assignment(id(1))
		require.Equal(t, Recovering, a.State, "%s: the others are made", name)
	}
	require.Error(t, c.Transition(ctx, []Transition{{ID: id(0), From: Writing, To: Starting}}), "not an owner's move")

	// A failure carries its reason and count, which Writing clears.
	fail := Transition{ID: id(2), Owner: 1, OwnerIncarnation: "run-1", From: Starting, To: Failed, Reason: "disk on fire", At: 77}
	require.NoError(t, c.Transition(ctx, []Transition{fail}))
	require.NoError(t, c.Transition(ctx, []Transition{fail}), "made already")
	a, _ := c.Image().Assignment(id(2))
	require.Equal(t, Assignment{Owner: 1, OwnerIncarnation: "run-1", State: Failed, Target: NoBroker, Failures: 1, FailedAt: 77, Reason: "disk on fire"}, a)
	next := a
	next.State, next.Epoch = Starting, 1
	require.NoError(t, term.Apply(ctx, []Change{{ID: id(2), Exists: true, Old: a, New: next}}))
	require.NoError(t, term.Apply(ctx, []Change{{ID: id(2), Exists: true, Old: a, New: next}}), "made already")
	require.NoError(t, c.Transition(ctx, []Transition{{ID: id(2), Owner: 1, OwnerIncarnation: "run-1", Epoch: 1, From: Starting, To: Writing}}))
	a, _ = c.Image().Assignment(id(2))
	require.Zero(t, a.Failures)
	lower := a
	lower.Epoch = 0
	require.ErrorIs(t, term.Apply(ctx, []Change{{ID: id(2), Exists: true, Old: a, New: lower}}), ErrFenced, "an epoch never falls")

	require.NoError(t, c.Transition(ctx, []Transition{{ID: id(2), Owner: 1, OwnerIncarnation: "run-1", Epoch: 1, From: Writing, To: Draining}}))
	release := []Transition{{ID: id(2), Owner: 1, OwnerIncarnation: "run-1", Epoch: 1, From: Draining, To: Unassigned}}
	require.NoError(t, c.Transition(ctx, release))
	require.NoError(t, c.Transition(ctx, release), "released already")
	a, _ = c.Image().Assignment(id(2))
	require.Equal(t, Assignment{Owner: NoBroker, Epoch: 1, State: Unassigned, Target: NoBroker}, a)
}

func TestRestartKeepsState(t *testing.T) {
	ctx := testContext(t)
	dir := t.TempDir()
	o := Options{Embedded: &EmbeddedOptions{Dir: dir}, BrokerID: 1, ClusterID: "c1"}
	c, err := Start(ctx, o)
	require.NoError(t, err)
	_, err = Start(ctx, o)
	require.ErrorIs(t, err, ErrInUse)
	topic, err := c.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 2})
	require.NoError(t, err)
	first, err := c.AllocateProducerIDs(ctx, 1000)
	require.NoError(t, err)
	require.Zero(t, first)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	_, err = c.Wait(ctx, 1<<60)
	require.ErrorIs(t, err, ErrClosed)

	o.ClusterID = "c2"
	_, err = Start(ctx, o)
	require.ErrorIs(t, err, ErrOtherCluster)
	o.ClusterID = ""
	start := time.Now()
	c, err = Start(ctx, o)
	require.NoError(t, err)
	t.Logf("restart took %v", time.Since(start))
	require.Equal(t, "c1", c.Image().ClusterID())
	require.Equal(t, topic.ID, c.Image().TopicByName("t").ID)
	first, err = c.AllocateProducerIDs(ctx, 5)
	require.NoError(t, err)
	require.Equal(t, int64(1000), first)
	h := c.Health(ctx)
	require.NoError(t, h.Err)
	require.NoError(t, h.Lagging)
	require.Positive(t, h.QuotaBytes)
	require.NoError(t, c.maintainOnce(ctx))
	require.NoError(t, c.defragment())
	require.NoError(t, c.compact(ctx))
	require.NoError(t, c.Close())
}
