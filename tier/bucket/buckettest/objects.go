package buckettest

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// pattern returns n bytes that differ at every place and for every seed.
func pattern(seed uint32, n int) []byte {
	b := make([]byte, n)
	x := seed*2654435761 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

func putGet(e *env) {
	before := time.Now().Add(-time.Hour)
	put := e.put("a/b/c", "hello")
	buf := []byte("xxxxxxxxxx")
	n, info, err := e.b.Get(e.ctx, op, "a/b/c", 0, 5, buf)
	require.NoError(e, err)
	require.Equal(e, 5, n)
	require.Equal(e, "helloxxxxx", string(buf), "only dst[:n] is written")
	require.Equal(e, put.ETag, info.ETag)
	require.Equal(e, "a/b/c", info.Key)
	require.EqualValues(e, 5, info.Size)
	require.True(e, info.Modified.After(before), "modified %v", info.Modified)
	st, err := e.b.Stat(e.ctx, op, "a/b/c")
	require.NoError(e, err)
	require.Equal(e, put.ETag, st.ETag)
	require.EqualValues(e, 5, st.Size)
	require.True(e, st.Modified.After(before))
}

func sizes(e *env) {
	for _, n := range []int{0, 1, 4095, 4096, 1 << 20, 17<<20 + 3} {
		body := pattern(uint32(n), n)
		info, err := e.b.Put(e.ctx, op, "size/x", bucket.BytesBody(body), bucket.Condition{})
		require.NoError(e, err)
		require.EqualValues(e, n, info.Size)
		got := make([]byte, n)
		_, after, err := e.b.Get(e.ctx, op, "size/x", 0, int64(n), got)
		require.NoError(e, err)
		require.True(e, string(body) == string(got), "size %d", n)
		require.Equal(e, info.ETag, after.ETag)
	}
}

func ranges(e *env) {
	body := pattern(1, 100_000)
	_, err := e.b.Put(e.ctx, op, "r/x", bucket.BytesBody(body), bucket.Condition{})
	require.NoError(e, err)
	for _, r := range [][2]int64{{0, 1}, {0, 100_000}, {99_999, 1}, {1, 99_999}, {4096, 8192}, {5, 0}, {100_000, 0}} {
		dst := make([]byte, r[1])
		n, info, err := e.b.Get(e.ctx, op, "r/x", r[0], r[1], dst)
		require.NoError(e, err, "range %v", r)
		require.EqualValues(e, r[1], n)
		require.EqualValues(e, 100_000, info.Size, "the size is the object's, not the range's")
		require.True(e, string(body[r[0]:r[0]+r[1]]) == string(dst), "range %v", r)
	}
}

func rangeOutside(e *env) {
	e.put("r/x", "0123456789")
	e.put("r/empty", "")
	dst := make([]byte, 20)
	for _, r := range [][2]int64{{0, 11}, {9, 2}, {10, 1}, {1000, 1}, {-1, 2}, {0, -1}, {0, 21}, {1 << 62, 1}} {
		_, _, err := e.b.Get(e.ctx, op, "r/x", r[0], r[1], dst)
		require.ErrorIs(e, err, bucket.ErrRange, "range %v", r)
	}
	_, _, err := e.b.Get(e.ctx, op, "r/empty", 0, 1, dst)
	require.ErrorIs(e, err, bucket.ErrRange)
}

func missing(e *env) {
	e.put("there/x", "x")
	for _, key := range []string{"nothing", "there/y", "there", "there/x/y", "a/b/c/d"} {
		_, _, err := e.b.Get(e.ctx, op, key, 0, 1, make([]byte, 1))
		require.ErrorIs(e, err, bucket.ErrNotFound, "get %s", key)
		_, err = e.b.Stat(e.ctx, op, key)
		require.ErrorIs(e, err, bucket.ErrNotFound, "stat %s", key)
		_, _, err = bucket.GetAll(e.ctx, e.b, op, key, 10)
		require.ErrorIs(e, err, bucket.ErrNotFound, "get all %s", key)
		require.NotErrorIs(e, err, bucket.ErrUnavailable)
	}
}

func overwrite(e *env) {
	first := e.put("o/x", "first")
	second := e.put("o/x", "secnd")
	require.NotEqual(e, first.ETag, second.ETag)
	require.Equal(e, "secnd", e.all("o/x"))
	third := e.put("o/x", "a longer one")
	require.Equal(e, "a longer one", e.all("o/x"))
	st, err := e.b.Stat(e.ctx, op, "o/x")
	require.NoError(e, err)
	require.Equal(e, third.ETag, st.ETag)
	require.Equal(e, []string{"o/x"}, e.list("o/"))
}

func getAll(e *env) {
	put := e.put("g/x", "0123456789")
	got, info, err := bucket.GetAll(e.ctx, e.b, op, "g/x", 10)
	require.NoError(e, err)
	require.Equal(e, "0123456789", string(got))
	require.Equal(e, put.ETag, info.ETag)
	require.EqualValues(e, 10, info.Size)
	_, _, err = bucket.GetAll(e.ctx, e.b, op, "g/x", 9)
	require.ErrorIs(e, err, bucket.ErrTooLarge)
	e.put("g/empty", "")
	got, _, err = bucket.GetAll(e.ctx, e.b, op, "g/empty", 0)
	require.NoError(e, err)
	require.Empty(e, got)
}

func keys(e *env) {
	good := []string{"A", "a-b_c.d=e/0123456789", "data/ff/AAECAwQFBgcICQoLDA0ODw/12/00000000000000000042-3-x.tbd", "_x", "-x/-y",
		".hidden/.x", "..x", "x..", strings.Repeat("k", 240)}
	for _, key := range good {
		e.put(key, "body of "+key)
	}
	for _, key := range good {
		require.Equal(e, "body of "+key, e.all(key))
	}
	require.ElementsMatch(e, good, e.list(""))
	bad := []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a b", "a%2E", "ä", "a\x00", "a\\b", strings.Repeat("k", 241),
		strings.Repeat("k/", 500) + "k"}
	for _, key := range bad {
		_, err := e.putIf(key, "x", bucket.Condition{})
		require.ErrorIs(e, err, bucket.ErrKey, "put %q", key)
		_, _, err = e.b.Get(e.ctx, op, key, 0, 0, nil)
		require.ErrorIs(e, err, bucket.ErrKey, "get %q", key)
		_, err = e.b.Stat(e.ctx, op, key)
		require.ErrorIs(e, err, bucket.ErrKey, "stat %q", key)
		require.ErrorIs(e, e.b.Delete(e.ctx, op, []string{key}), bucket.ErrKey, "delete %q", key)
	}
	_, err := e.b.List(e.ctx, op, "a b", "", 0)
	require.ErrorIs(e, err, bucket.ErrKey)
}

// stream makes a body of what open returns, with any size and checksum.
func stream(content string, size int64, crc uint32) bucket.Body {
	return bucket.FuncBody(size, crc, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil })
}

func crcOf(s string) uint32 { return crc32.Checksum([]byte(s), crc32.MakeTable(crc32.Castagnoli)) }

func badChecksum(e *env) {
	e.put("c/old", "old")
	for _, key := range []string{"c/new", "c/old"} {
		_, err := e.b.Put(e.ctx, op, key, stream("content", 7, crcOf("contents")), bucket.Condition{})
		require.ErrorIs(e, err, bucket.ErrCorrupt)
	}
	require.Equal(e, "old", e.all("c/old"))
	require.Equal(e, []string{"c/old"}, e.list(""))
	_, err := e.b.Put(e.ctx, op, "c/new", stream("content", 7, crcOf("content")), bucket.Condition{})
	require.NoError(e, err)
	require.Equal(e, "content", e.all("c/new"))
}

func badSize(e *env) {
	for _, size := range []int64{6, 8, 0} {
		_, err := e.b.Put(e.ctx, op, "c/size", stream("content", size, crcOf("content")), bucket.Condition{})
		require.Error(e, err, "size %d", size)
	}
	_, err := e.b.Put(e.ctx, op, "c/size", stream("content", -1, 0), bucket.Condition{})
	require.ErrorIs(e, err, bucket.ErrTooLarge)
	_, err = e.b.Put(e.ctx, op, "c/size", stream("content", bucket.MaxObject+1, 0), bucket.Condition{})
	require.ErrorIs(e, err, bucket.ErrTooLarge)
	require.Empty(e, e.list(""))
}

func bodyFails(e *env) {
	broken := errors.New("the body is broken")
	body := bucket.FuncBody(1<<20, 0, func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("some"), iotest.ErrReader(broken))), nil
	})
	ctx, cancel := context.WithTimeout(e.ctx, 20*time.Second)
	defer cancel()
	_, err := e.b.Put(ctx, op, "f/x", body, bucket.Condition{})
	require.ErrorIs(e, err, broken)
	_, err = e.b.Put(ctx, op, "f/x", bucket.FuncBody(3, 0, func() (io.ReadCloser, error) { return nil, broken }), bucket.Condition{})
	require.ErrorIs(e, err, broken)
	require.Empty(e, e.list(""))
}

func canceled(e *env) {
	e.put("x/y", "1")
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	check := func(err error) {
		e.Helper()
		require.ErrorIs(e, err, context.Canceled)
		require.ErrorIs(e, err, bucket.ErrUnavailable)
	}
	_, _, err := e.b.Get(ctx, op, "x/y", 0, 1, make([]byte, 1))
	check(err)
	_, err = e.b.Put(ctx, op, "x/y", bucket.BytesBody([]byte("2")), bucket.Condition{})
	check(err)
	_, err = e.b.Stat(ctx, op, "x/y")
	check(err)
	_, err = e.b.List(ctx, op, "", "", 0)
	check(err)
	check(e.b.Delete(ctx, op, []string{"x/y"}))
	_, _, err = bucket.GetAll(ctx, e.b, op, "x/y", 10)
	check(err)
	require.Equal(e, "1", e.all("x/y"))
}
