package partition

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The frame that begins an epoch names the topic. A name of any legal length must come back, and must not make the
// log look damaged.
func TestLongTopicNameSurvivesRestart(t *testing.T) {
	for _, n := range []int{1, 21, 22, 100, 249} {
		w := newCrashWorld(t)
		w.open()
		name := strings.Repeat("n", n)
		p := w.topic(name, nil)
		require.NoError(t, w.send(p))
		require.NoError(t, w.send(p))
		id := p.ID()
		w.crash(t, 1, false)
		s := w.open()
		require.Empty(t, s.Recovered().Corrupt, "name of %d bytes", n)
		require.Zero(t, s.Recovered().Torn)
		p = s.Get(id)
		require.NotNil(t, p)
		require.Equal(t, name, p.Topic())
		p = w.await(id)
		w.verify(t, p, "after a restart")
		w.close()
	}
}
