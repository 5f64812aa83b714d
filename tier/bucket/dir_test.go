package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

var tool = bucket.Op{Class: bucket.ClassTool}

func putDir(t *testing.T, b bucket.Bucket, key, content string) bucket.Info {
	t.Helper()
	info, err := b.Put(t.Context(), tool, key, bucket.BytesBody([]byte(content)), bucket.Condition{})
	require.NoError(t, err)
	return info
}

func TestDirSurvivesRestart(t *testing.T) {
	path := t.TempDir()
	d, err := bucket.OpenDir(path)
	require.NoError(t, err)
	info := putDir(t, d, "a/b", "one")
	require.NoError(t, d.Close())
	again, err := bucket.OpenDir(path)
	require.NoError(t, err)
	defer again.Close()
	got, err := again.Stat(t.Context(), tool, "a/b")
	require.NoError(t, err)
	require.Equal(t, info, got)
	_, err = again.Put(t.Context(), tool, "a/b", bucket.BytesBody([]byte("two")), bucket.Condition{IfMatch: info.ETag})
	require.NoError(t, err)
	raw, err := os.ReadFile(filepath.Join(path, "a", "b"))
	require.NoError(t, err)
	require.Equal(t, "two", string(raw), "an object is a plain file")
}

// TestDirETags change with every put, even when the clock went back or stands still and the bytes are the same.
func TestDirETags(t *testing.T) {
	d := openDir(t)
	seen := map[string]bool{}
	for i := range 50 {
		if i == 10 {
			future := time.Now().Add(time.Hour)
			require.NoError(t, os.Chtimes(filepath.Join(d.Path(), "x"), future, future))
		}
		info := putDir(t, d, "x", "same")
		require.False(t, seen[info.ETag], "put %d", i)
		seen[info.ETag] = true
	}
}

// TestDirCrashInPut: what a crashed process leaves is invisible, and swept when nobody holds it any more.
func TestDirCrashInPut(t *testing.T) {
	path := t.TempDir()
	d, err := bucket.OpenDir(path)
	require.NoError(t, err)
	putDir(t, d, "a", "x")
	temps := func() []string {
		m, err := filepath.Glob(filepath.Join(path, ".tierbroker", "tmp", "*"))
		require.NoError(t, err)
		return m
	}
	dead := filepath.Join(path, ".tierbroker", "tmp", "DEAD")
	require.NoError(t, os.Mkdir(dead, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dead, "put-1"), []byte("half"), 0o644))
	require.NoError(t, os.WriteFile(dead+".alive", nil, 0o644))
	require.Len(t, temps(), 4)
	other, err := bucket.OpenDir(path)
	require.NoError(t, err)
	require.Len(t, temps(), 4, "the dead one is gone, both living ones are there")
	require.NoDirExists(t, dead)
	page, err := other.List(t.Context(), tool, "", "", 0)
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	require.NoError(t, other.Close())
	require.NoError(t, d.Close())
	require.Empty(t, temps())
	putDir(t, d, "b", "a closed bucket starts to write again")
	require.NoError(t, d.Close())
}

// TestDirFailedPutLeavesNothing: no file, no folder, no temporary file.
func TestDirFailedPutLeavesNothing(t *testing.T) {
	d := openDir(t)
	broken := errors.New("broken")
	body := bucket.FuncBody(10, 0, func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(broken)), nil })
	_, err := d.Put(t.Context(), tool, "a/b/c", body, bucket.Condition{})
	require.ErrorIs(t, err, broken)
	_, err = d.Put(t.Context(), tool, "a/b/c", bucket.BytesBody(nil), bucket.Condition{IfMatch: "1"})
	require.ErrorIs(t, err, bucket.ErrPrecondition)
	var files []string
	require.NoError(t, filepath.WalkDir(d.Path(), func(p string, e os.DirEntry, err error) error {
		if strings.Contains(p, "put-") || filepath.Base(p) == "a" {
			files = append(files, p)
		}
		return err
	}))
	require.Empty(t, files)
}

func TestDirPrunesFolders(t *testing.T) {
	d := openDir(t)
	putDir(t, d, "a/b/c/1", "x")
	putDir(t, d, "a/b/2", "x")
	require.NoError(t, d.Delete(t.Context(), tool, []string{"a/b/c/1"}))
	require.NoDirExists(t, filepath.Join(d.Path(), "a", "b", "c"))
	require.DirExists(t, filepath.Join(d.Path(), "a", "b"))
	require.NoError(t, d.Delete(t.Context(), tool, []string{"a/b/2"}))
	require.NoDirExists(t, filepath.Join(d.Path(), "a"))
	require.DirExists(t, d.Path())
	// What a crash between a removal and its pruning leaves is no obstacle.
	require.NoError(t, os.MkdirAll(filepath.Join(d.Path(), "k"), 0o755))
	putDir(t, d, "k", "x")
	require.NoError(t, os.MkdirAll(filepath.Join(d.Path(), "l", "m"), 0o755))
	_, err := d.Put(t.Context(), tool, "l", bucket.BytesBody(nil), bucket.Condition{})
	require.ErrorIs(t, err, bucket.ErrKey)
	_, err = d.Put(t.Context(), tool, "k/below", bucket.BytesBody(nil), bucket.Condition{})
	require.ErrorIs(t, err, bucket.ErrKey)
}

// TestDirForeignFiles are not objects, and stay.
func TestDirForeignFiles(t *testing.T) {
	d := openDir(t)
	putDir(t, d, "x/1", "x")
	for _, name := range []string{"lost found", ".hidden", "x/.swp", "x/a~", "x/%41", "ä"} {
		require.NoError(t, os.WriteFile(filepath.Join(d.Path(), name), nil, 0o644))
	}
	require.NoError(t, os.Symlink("1", filepath.Join(d.Path(), "x", "link")))
	page, err := d.List(t.Context(), tool, "", "", 0)
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	require.NoError(t, d.Delete(t.Context(), tool, []string{"x/1"}))
	require.FileExists(t, filepath.Join(d.Path(), "x", ".swp"))
}

// TestDirGone: a bucket that was unmounted or moved away is unavailable, not empty.
func TestDirGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b")
	d, err := bucket.OpenDir(path)
	require.NoError(t, err)
	info := putDir(t, d, "a/b", "x")
	require.NoError(t, os.Rename(path, path+".moved"))
	for _, empty := range []bool{false, true} {
		if empty {
			require.NoError(t, os.Mkdir(path, 0o755))
		}
		_, _, err = d.Get(t.Context(), tool, "a/b", 0, 1, make([]byte, 1))
		require.ErrorIs(t, err, bucket.ErrUnavailable)
		require.NotErrorIs(t, err, bucket.ErrNotFound)
		_, err = d.Stat(t.Context(), tool, "a/b")
		require.ErrorIs(t, err, bucket.ErrUnavailable)
		_, err = d.List(t.Context(), tool, "a/", "", 0)
		require.ErrorIs(t, err, bucket.ErrUnavailable)
		_, err = d.Put(t.Context(), tool, "a/b", bucket.BytesBody(nil), bucket.Condition{})
		require.ErrorIs(t, err, bucket.ErrUnavailable)
		_, err = d.Put(t.Context(), tool, "a/b", bucket.BytesBody(nil), bucket.Condition{IfMatch: info.ETag})
		require.ErrorIs(t, err, bucket.ErrUnavailable)
		require.ErrorIs(t, d.Delete(t.Context(), tool, []string{"a/b"}), bucket.ErrUnavailable)
	}
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Rename(path+".moved", path))
	putDir(t, d, "a/b", "x")
	require.NoError(t, d.Close())
}

func TestOpenDirErrors(t *testing.T) {
	path := t.TempDir()
	file := filepath.Join(path, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := bucket.OpenDir(file)
	require.ErrorIs(t, err, bucket.ErrConfig)
	_, err = bucket.OpenDir(filepath.Join(file, "below"))
	require.ErrorIs(t, err, bucket.ErrConfig)
	_, err = bucket.OpenExistingDir(filepath.Join(path, "missing"))
	require.ErrorIs(t, err, bucket.ErrConfig)
	ro, err := bucket.OpenExistingDir(path)
	require.NoError(t, err)
	page, err := ro.List(t.Context(), tool, "", "", 0)
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	require.NoDirExists(t, filepath.Join(path, ".tierbroker"), "a reader writes nothing")
	require.NoError(t, ro.Close())
}

// TestDirProcesses lets several processes race for the same keys: every round has one winner among all of them.
func TestDirProcesses(t *testing.T) {
	if path := os.Getenv("BUCKET_TEST_DIR"); path != "" {
		raceAsProcess(t, path)
		return
	}
	d := openDir(t)
	const processes = 4
	var cmds []*exec.Cmd
	outs := make([]*strings.Builder, processes)
	for i := range processes {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDirProcesses$")
		cmd.Env = append(os.Environ(), "BUCKET_TEST_DIR="+d.Path(), fmt.Sprintf("BUCKET_TEST_WRITER=%d", i))
		outs[i] = &strings.Builder{}
		cmd.Stdout, cmd.Stderr = outs[i], outs[i]
		require.NoError(t, cmd.Start())
		cmds = append(cmds, cmd)
	}
	for i, cmd := range cmds {
		require.NoError(t, cmd.Wait(), outs[i].String())
	}
	got, _, err := bucket.GetAll(t.Context(), d, tool, "counter", 100)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(processes*raceRounds), string(got))
	page, err := d.List(t.Context(), tool, "won/", "", 0)
	require.NoError(t, err)
	require.Len(t, page.Items, raceRounds)
}

const raceRounds = 40

func raceAsProcess(t *testing.T, path string) {
	d, err := bucket.OpenDir(path)
	require.NoError(t, err)
	defer d.Close()
	ctx := context.Background()
	me := os.Getenv("BUCKET_TEST_WRITER")
	for i := range raceRounds {
		// Count by compare-and-swap, and race to create the round's key in a folder that others empty and prune.
		for {
			old, info, err := bucket.GetAll(ctx, d, tool, "counter", 100)
			cond := bucket.Condition{IfMatch: info.ETag}
			n := 0
			if errors.Is(err, bucket.ErrNotFound) {
				cond = bucket.Condition{IfNoneMatch: true}
			} else {
				require.NoError(t, err)
				_, err = fmt.Sscan(string(old), &n)
				require.NoError(t, err)
			}
			_, err = d.Put(ctx, tool, "counter", bucket.BytesBody(fmt.Append(nil, n+1)), cond)
			if err == nil {
				break
			}
			require.ErrorIs(t, err, bucket.ErrPrecondition)
		}
		_, err := d.Put(ctx, tool, fmt.Sprintf("won/%d", i), bucket.BytesBody([]byte(me)), bucket.Condition{IfNoneMatch: true})
		if err != nil {
			require.ErrorIs(t, err, bucket.ErrPrecondition)
		}
		key := fmt.Sprintf("shared/folder/%s-%d", me, i)
		_, err = d.Put(ctx, tool, key, bucket.BytesBody([]byte(me)), bucket.Condition{})
		require.NoError(t, err)
		require.NoError(t, d.Delete(ctx, tool, []string{key}))
	}
}

// TestDirListMatchesMemory: random keys, random prefixes, starts and page sizes give the same pages in both.
func TestDirListMatchesMemory(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	word := func() string {
		const letters = "aab-.=_Z/0"
		var b strings.Builder
		for range 1 + r.IntN(6) {
			b.WriteByte(letters[r.IntN(len(letters))])
		}
		return b.String()
	}
	d, m := openDir(t), bucket.NewMemory()
	var keys []string
	for range 150 {
		key := word()
		_, merr := m.Put(t.Context(), tool, key, bucket.BytesBody(nil), bucket.Condition{})
		_, derr := d.Put(t.Context(), tool, key, bucket.BytesBody(nil), bucket.Condition{})
		require.Equal(t, merr == nil, derr == nil, "%q: %v, %v", key, merr, derr)
		if merr == nil {
			keys = append(keys, key)
		}
	}
	list := func(b bucket.Bucket, prefix, after string, max int) ([]string, string) {
		p, err := b.List(t.Context(), tool, prefix, after, max)
		require.NoError(t, err)
		var got []string
		for _, i := range p.Items {
			got = append(got, i.Key)
		}
		require.True(t, slices.IsSorted(got))
		return got, p.Next
	}
	for range 500 {
		prefix, after, max := word(), word(), 1+r.IntN(8)
		switch r.IntN(4) {
		case 0:
			prefix = ""
		case 1:
			k := keys[r.IntN(len(keys))]
			prefix = k[:r.IntN(len(k)+1)]
		}
		if r.IntN(2) == 0 {
			after = keys[r.IntN(len(keys))]
		}
		want, wantNext := list(m, prefix, after, max)
		got, next := list(d, prefix, after, max)
		require.Equal(t, want, got, "prefix %q after %q max %d", prefix, after, max)
		require.Equal(t, wantNext, next)
	}
}

// FuzzDirKeys: every valid key has one file name of its own inside the bucket, and comes back from it.
func FuzzDirKeys(f *testing.F) {
	for _, k := range []string{"a", ".x/..y/z.", "...", "a/.tierbroker", ".tierbroker/tmp", "-/_/=", "%2E", "A/a", strings.Repeat("x", 240)} {
		f.Add(k)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if bucket.CheckKey(key) != nil {
			return
		}
		path := bucket.EscapeKey(key)
		require.True(t, filepath.IsLocal(path))
		require.Equal(t, path, filepath.Clean(path))
		var back []string
		for _, name := range strings.Split(path, "/") {
			require.NotEqual(t, '.', rune(name[0]))
			require.LessOrEqual(t, len(name), 255)
			seg, ok := bucket.UnescapeName(name)
			require.True(t, ok)
			back = append(back, seg)
		}
		require.Equal(t, key, strings.Join(back, "/"))
	})
}

// FuzzUnescapeName: whatever lies in the directory, a name is either none of ours or belongs to exactly one key.
func FuzzUnescapeName(f *testing.F) {
	for _, n := range []string{"a", "%2Ex", "%2E", ".x", "%2E%2E", "lost+found", "x~"} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || strings.Contains(name, "/") {
			return
		}
		if seg, ok := bucket.UnescapeName(name); ok {
			require.Equal(t, name, bucket.EscapeKey(seg))
		}
	})
}
