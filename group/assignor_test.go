package group

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// assignerWorld is a consumer group whose members and topics a test sets as it likes.
func assignerWorld(assignor string, topics topicList) (*Machine, *consumer) {
	m := New(Options{NewID: func() string { return "" }, ConsumerAssignors: []string{assignor}})
	m.SetTopics(topics)
	return m, &consumer{members: map[string]*member{}, regexes: map[string]*regex{}}
}

// run assigns and makes the result the target that the next run starts from.
func runAssigner(m *Machine, c *consumer) {
	for id, a := range m.runAssignor(c) {
		c.members[id].want = a
	}
}

// checkAssigned fails if a partition that somebody is subscribed to has not exactly one owner, who is subscribed to it.
func checkAssigned(t *rapid.T, m *Machine, c *consumer, topics topicList) {
	owners := map[slotID]string{}
	for id, mem := range c.members {
		mem.want.each(func(topic [16]byte, p int32) {
			require.Empty(t, owners[slotID{topic, p}], "two owners")
			owners[slotID{topic, p}] = id
			require.Contains(t, mem.meta.topics, idName(topic))
		})
	}
	subscribed := c.subscribed(m)
	for _, topic := range topics {
		for p := range topic.Partitions {
			require.Equal(t, subscribed(topic.Name), owners[slotID{topic.ID, p}] != "", "%s %d", topic.Name, p)
		}
	}
}

func count(a assignment) int {
	n := 0
	a.each(func([16]byte, int32) { n++ })
	return n
}

// TestAssignors: everything is assigned once, evenly, and what needn't move doesn't.
func TestAssignors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var topics topicList
		for i := range rapid.IntRange(0, 6).Draw(t, "topics") {
			name := fmt.Sprintf("t%d", i)
			topics = append(topics, Topic{topicID(name), name, int32(rapid.IntRange(1, 20).Draw(t, "partitions"))})
		}
		same := rapid.Bool().Draw(t, "same")
		kind := rapid.SampledFrom([]string{"uniform", "range"}).Draw(t, "assignor")
		m, c := assignerWorld(kind, topics)
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			id := fmt.Sprintf("m%d", rapid.IntRange(0, 9).Draw(t, "member"))
			delete(c.members, id)
			if rapid.IntRange(0, 3).Draw(t, "leave") > 0 {
				mem := &member{id: id}
				for _, topic := range topics {
					if same || rapid.Bool().Draw(t, "subscribed") {
						mem.meta.topics = append(mem.meta.topics, topic.Name)
					}
				}
				c.members[id] = mem
			}
			runAssigner(m, c)
			checkAssigned(t, m, c, topics)
			if kind == "uniform" {
				checkEven(t, c, topics)
				before := map[string]assignment{}
				for id, mem := range c.members {
					before[id] = mem.want
				}
				runAssigner(m, c)
				for id, mem := range c.members {
					require.True(t, before[id].equal(mem.want), "nothing changed, nothing moves")
				}
			}
		}
	})
}

// checkEven fails if a partition could move from one member to a subscriber that has at least two less.
func checkEven(t *rapid.T, c *consumer, topics topicList) {
	for _, topic := range topics {
		for _, from := range c.members {
			if len(from.want.parts(topic.ID)) == 0 {
				continue
			}
			for _, to := range c.members {
				for _, name := range to.meta.topics {
					if name == topic.Name {
						require.LessOrEqual(t, count(from.want)-count(to.want), 1)
					}
				}
			}
		}
	}
}

// TestUniformMovesFew: a member that comes takes its share from the others, and nothing else moves.
func TestUniformMovesFew(t *testing.T) {
	topics := topicList{{topicID("t"), "t", 100}}
	m, c := assignerWorld("uniform", topics)
	for i := range 9 {
		c.members[fmt.Sprint(i)] = &member{id: fmt.Sprint(i), meta: memberMeta{topics: []string{"t"}}}
	}
	runAssigner(m, c)
	before := map[string]assignment{}
	for id, mem := range c.members {
		before[id] = mem.want
	}
	c.members["new"] = &member{id: "new", meta: memberMeta{topics: []string{"t"}}}
	runAssigner(m, c)
	require.Equal(t, 10, count(c.members["new"].want))
	for id, old := range before {
		require.Empty(t, c.members[id].want.filter(func(topic [16]byte, p int32) bool { return !old.has(topic, p) }), "who stays gets nothing new")
	}
}
