package partition

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
)

// The commit log disappears, wholly or its newest file, and the index stays. What the bucket has is served, the offsets that were lost
// are void and never used again, and the partition goes on by itself.
func TestLostLogBehindTheIndex(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, files []string){
		"all of it": func(t *testing.T, files []string) {
			for _, f := range files {
				require.NoError(t, os.Remove(f))
			}
		},
		"its newest files": func(t *testing.T, files []string) {
			for _, f := range files[1:] {
				require.NoError(t, os.Remove(f))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.tune = func(o *SetOptions) { o.Log.FileBytes = 64 << 10 }
			w.open()
			p := w.topic("t", nil)
			pad := string(make([]byte, 20_000))
			kept := produce(t, p, batch.None, []string{"kept"}, []int64{1})
			require.NoError(t, p.Roll(t.Context()))
			end := int64(0)
			for i := range 10 {
				out := produce(t, p, batch.None, []string{pad}, []int64{int64(i)})
				end = out[0].offset + 1
			}
			w.close()
			files, err := filepath.Glob(filepath.Join(w.dir, "log", "*"))
			require.NoError(t, err)
			var logs []string
			for _, f := range files {
				if st, err := os.Stat(f); err == nil && !st.IsDir() {
					logs = append(logs, f)
				}
			}
			require.Greater(t, len(logs), 1)
			lose(t, logs)
			w.open()
			p = w.await(p.ID())
			next := produce(t, p, batch.None, []string{"after"}, []int64{9})
			require.GreaterOrEqual(t, next[0].offset, end, "an offset that was acknowledged before is given out again")
			got, err := fetch(p, 0, 1<<20)
			require.NoError(t, err)
			require.Equal(t, kept[0], got[0])
			all := readAll(t, p)
			require.Equal(t, next[0], all[len(all)-1])
			require.NoError(t, p.Roll(t.Context()))
			require.NoError(t, p.Evict(t.Context()))
			require.Equal(t, all, readAll(t, p))
			w.close()
		})
	}
}
