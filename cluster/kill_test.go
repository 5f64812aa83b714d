package cluster

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const killDir = "TIERBROKER_TEST_KILL_DIR"

// killedProcess is what TestMain runs in the process that TestKilledProcess kills.
func killedProcess(dir string) error {
	ctx := context.Background()
	c, err := Start(ctx, Options{Embedded: &EmbeddedOptions{Dir: dir}})
	if err != nil {
		return err
	}
	run := NewID()[:8]
	for i := 0; ; i++ {
		topic, err := c.CreateTopic(ctx, TopicSpec{Name: fmt.Sprintf("%s-%d", strings.ReplaceAll(run, "_", "."), i), Partitions: 1})
		if err != nil {
			return err
		}
		first, err := c.AllocateProducerIDs(ctx, 1)
		if err != nil {
			return err
		}
		if _, err := fmt.Println(topic.Name, topic.ID, first); err != nil {
			return err
		}
	}
}

// TestKilledProcess kills a process with kill -9 while it writes, and looks for
// everything it had acknowledged.
func TestKilledProcess(t *testing.T) {
	dir := t.TempDir()
	acked := map[string]string{}
	next := int64(0)
	for round := range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killDir+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		left := 5 + rand.IntN(60)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var name, id string
			var first int64
			_, err := fmt.Sscan(lines.Text(), &name, &id, &first)
			require.NoError(t, err)
			acked[name] = id
			require.GreaterOrEqual(t, first, next, "no producer id is handed out twice")
			next = first + 1
			if left--; left == 0 {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		require.Error(t, cmd.Wait(), "it was killed")
		require.LessOrEqual(t, left, 0, "it was killed while it wrote")

		c, err := Start(testContext(t), Options{Embedded: &EmbeddedOptions{Dir: dir}})
		require.NoError(t, err)
		for name, id := range acked {
			topic := c.Image().TopicByName(name)
			require.NotNil(t, topic, "round %d: %s was acknowledged", round, name)
			require.Equal(t, id, topic.ID.String())
		}
		require.LessOrEqual(t, len(c.Image().Topics())-len(acked), round+1, "at most one unacknowledged topic for each kill")
		require.GreaterOrEqual(t, c.Image().NextProducerID(), next)
		require.NoError(t, c.Close())
		_, err = os.Stat(dir)
		require.NoError(t, err)
	}
}
