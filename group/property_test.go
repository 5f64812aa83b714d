package group

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestClients lets clients of both protocols join, leave, vanish and come back, in random order, with crashes of the
// coordinator between; never do two own one partition, and left alone they always come to rest with everything owned.
func TestClients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{"classic", "modern", "both"}).Draw(t, "kind")
		s := newSim(Options{InitialRebalanceDelay: time.Duration(rapid.IntRange(0, 3).Draw(t, "delay")) * time.Second}, 6)
		steps := rapid.IntRange(5, 120).Draw(t, "steps")
		for range steps {
			s.random(t, kind)
			_, err := s.owners()
			require.NoError(t, err)
			require.Equal(t, weigh(s.w.m), s.w.m.memberBytes)
		}
		if len(s.clients) == 0 {
			s.add(kind == "modern", nil)
		}
		require.NoError(t, s.settle())
		s.checkReplay(t)
	})
}

func (s *simGroup) random(t *rapid.T, kind string) {
	n := len(s.clients)
	action := rapid.IntRange(0, 19).Draw(t, "action")
	if n == 0 || action <= 1 && n < 8 {
		var instance *string
		if rapid.IntRange(0, 3).Draw(t, "static") == 0 {
			i := fmt.Sprintf("i%d", rapid.IntRange(0, 2).Draw(t, "instance"))
			if !slices.ContainsFunc(s.clients, func(c *simClient) bool { return c.instance != nil && *c.instance == i }) {
				instance = &i
			}
		}
		s.add(kind == "modern" || kind == "both" && rapid.Bool().Draw(t, "modern"), instance)
		return
	}
	c := s.clients[rapid.IntRange(0, n-1).Draw(t, "client")]
	switch action {
	case 2: // it vanishes, and may come back as a new process
		s.drop(c)
		if rapid.Bool().Draw(t, "back") {
			s.add(c.modern, c.instance)
		}
	case 3:
		s.leave(c)
	case 4:
		s.crash(rapid.Bool().Draw(t, "compact"))
	case 5, 6:
		s.w.advance(time.Duration(rapid.IntRange(1, 20000).Draw(t, "ms")) * time.Millisecond)
	case 7:
		if s.partitions < 10 {
			s.grow(s.partitions + 1)
		}
	case 8: // an answer is lost
		if c.token == 0 {
			s.call(c, s.next(c))
			c.token, c.lost = 0, true
		}
	default:
		s.step(c)
	}
}

func (s *simGroup) leave(c *simClient) {
	s.drop(c)
	if c.id == "" || c.token != 0 {
		return
	}
	if c.modern {
		a := args{"member": c.id, "epoch": "-1", "": "g"}
		if c.instance != nil {
			a["instance"], a["epoch"] = *c.instance, "-2"
		}
		s.call(c, buildBeat(a, "g"))
		return
	}
	if c.instance == nil {
		s.call(c, buildRequest(nil, "leave", args{"": "g", "v": "4", "members": c.id}))
	}
}

func (s *simGroup) crash(compact bool) {
	if compact {
		s.w.log = snapshotOf(s.w.m)
	}
	clear(s.w.open)
	s.w.boot()
}

func (s *simGroup) checkReplay(t require.TestingT) {
	again := New(s.w.opts)
	for _, r := range s.w.log {
		again.Apply(r)
	}
	require.Equal(t, snapshotOf(s.w.m), snapshotOf(again))
	require.Zero(t, again.badRecords)
}

// settle lets the clients go on by themselves until all is owned and stays so.
func (s *simGroup) settle() error {
	quiet := 0
	for range 200 {
		s.w.advance(time.Second)
		for _, c := range slices.Clone(s.clients) {
			s.step(c)
		}
		owned, err := s.owners()
		if err != nil {
			return err
		}
		if len(owned) != int(s.partitions) || s.w.m.groups["g"].state() != StateStable {
			// Classic consumers look at topics themselves: a leader joins again when partitions were added.
			if g := s.w.m.groups["g"]; g != nil && g.classic != nil && g.classic.state == StateStable {
				for _, c := range s.clients {
					if c.id == g.classic.leader && c.phase == "beat" && c.assignedFor != s.partitions {
						c.phase = "join"
					}
				}
			}
			quiet = 0
			continue
		}
		if quiet++; quiet > 3 {
			return nil
		}
	}
	g := s.w.m.groups["g"]
	state := ""
	for _, c := range s.clients {
		state += fmt.Sprintf("\n%+v", *c)
	}
	if g.consumer != nil {
		for _, m := range g.consumer.members {
			state += fmt.Sprintf("\n%s epoch=%d state=%d has=%v gives=%v wants=%v", m.id, m.now.epoch, m.now.state, m.now.assigned, m.now.revoking, m.want)
		}
	}
	return fmt.Errorf("no rest: %v %s", g.state(), state)
}
