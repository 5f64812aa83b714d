package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFullEtcdRecovers fills the quota with history and lets maintenance make room.
func TestFullEtcdRecovers(t *testing.T) {
	ctx := testContext(t)
	c, err := Start(ctx, Options{Embedded: &EmbeddedOptions{Dir: t.TempDir(), QuotaBytes: 8 << 20}, Timeout: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	big := strings.Repeat("0:1,", 40<<10)
	topic, err := c.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 1})
	require.NoError(t, err)
	for range 200 {
		ops := []ConfigOp{{Name: "leader.replication.throttled.replicas", Value: big[:len(big)-1]}}
		if _, err = c.AlterTopicConfig(ctx, topic.ID, ops, false); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, ErrUnavailable, "the quota holds")
	require.True(t, c.Health(ctx).NoSpace)
	_, err = c.CreateTopic(ctx, TopicSpec{Name: "u", Partitions: 1})
	require.ErrorIs(t, err, ErrUnavailable)
	require.NotNil(t, c.Image().TopicByName("t"), "reads go on")

	require.NoError(t, c.maintainOnce(ctx))
	h := c.Health(ctx)
	require.False(t, h.NoSpace)
	require.Less(t, h.DBBytes, int64(8<<20))
	_, err = c.CreateTopic(ctx, TopicSpec{Name: "u", Partitions: 1})
	require.NoError(t, err)
	_, err = c.AlterTopicConfig(ctx, topic.ID, []ConfigOp{{Name: "leader.replication.throttled.replicas", Value: strings.Repeat("0:1,", 80<<10)}}, false)
	require.ErrorIs(t, err, ErrInvalidConfig, "a record that could not be read back is refused")
}
