package buckettest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

func listOrder(e *env) {
	keys := []string{"b", "a/b", "a-b", "a.b", "a=b", "a_b", "A/z", "a0", "a/b-c", "aa/b", "a/0/x", "a/A", "a0/1", "9", "_"}
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == "a0" || k == "a/b" })
	for _, k := range keys {
		e.put(k, k)
	}
	slices.Sort(keys)
	require.Equal(e, keys, e.list(""))
	page, err := e.b.List(e.ctx, op, "", "", 0)
	require.NoError(e, err)
	for _, item := range page.Items {
		st, err := e.b.Stat(e.ctx, op, item.Key)
		require.NoError(e, err)
		require.Equal(e, st.ETag, item.ETag)
		require.Equal(e, st.Size, item.Size)
		require.False(e, item.Modified.IsZero())
	}
}

func listPages(e *env) {
	var keys []string
	for i := range 12 {
		keys = append(keys, fmt.Sprintf("p/%d/%02d", i/5, i))
		e.put(keys[i], "x")
	}
	e.put("q/x", "x")
	for size := 1; size <= 13; size++ {
		var got []string
		after := ""
		for {
			p, err := e.b.List(e.ctx, op, "p/", after, size)
			require.NoError(e, err)
			require.LessOrEqual(e, len(p.Items), size)
			for _, i := range p.Items {
				got = append(got, i.Key)
			}
			if p.Next == "" {
				break
			}
			require.NotEmpty(e, p.Items)
			after = p.Next
		}
		require.Equal(e, keys, got, "pages of %d", size)
	}
	// after need not exist, and may lie before, between or past the prefix.
	for after, want := range map[string][]string{"p/0/02x": keys[3:], "p/1": keys[5:], "a": keys, "p/1/": keys[5:], "p/2/11": nil, "z": nil, "p": keys} {
		p, err := e.b.List(e.ctx, op, "p/", after, 0)
		require.NoError(e, err)
		var got []string
		for _, i := range p.Items {
			got = append(got, i.Key)
		}
		require.Equal(e, want, got, "after %q", after)
		require.Empty(e, p.Next)
	}
}

func listPrefixes(e *env) {
	for _, k := range []string{"head/00/x/0", "head/00/x/1", "head/00/x/10", "head/01/y/0", "heads/x", "data/x"} {
		e.put(k, "x")
	}
	require.Equal(e, []string{"head/00/x/0", "head/00/x/1", "head/00/x/10", "head/01/y/0"}, e.list("head/"))
	require.Equal(e, []string{"head/00/x/0", "head/00/x/1", "head/00/x/10", "head/01/y/0", "heads/x"}, e.list("head"))
	require.Equal(e, []string{"head/00/x/1", "head/00/x/10"}, e.list("head/00/x/1"))
	require.Equal(e, []string{"head/00/x/0"}, e.list("head/00/x/0"))
	require.Empty(e, e.list("head/00/x/0/"))
	require.Empty(e, e.list("nothing/"))
	require.Empty(e, e.list("head/00/z"))
}

func listManyPages(e *env) {
	const n = 1203
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				if _, err := e.putIf(fmt.Sprintf("many/%04d", i), "", bucket.Condition{}); err != nil {
					e.Errorf("put %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	p, err := e.b.List(e.ctx, op, "many/", "", 5000)
	require.NoError(e, err)
	require.Len(e, p.Items, bucket.MaxList)
	require.Equal(e, "many/0999", p.Next)
	got := e.list("many/")
	require.Len(e, got, n)
	require.True(e, slices.IsSorted(got))
	require.NoError(e, e.b.Delete(e.ctx, op, got), "more keys than one S3 request takes")
	require.Empty(e, e.list(""))
}

func deleteKeys(e *env) {
	e.put("d/a/1", "x")
	e.put("d/a/2", "x")
	e.put("d/b/1", "x")
	require.NoError(e, e.b.Delete(e.ctx, op, nil))
	require.NoError(e, e.b.Delete(e.ctx, op, []string{"d/a/1", "d/a/1", "d/never", "never/was/there"}))
	require.Equal(e, []string{"d/a/2", "d/b/1"}, e.list(""))
	err := e.b.Delete(e.ctx, op, []string{"d/a/2", "not a key"})
	var failed *bucket.DeleteError
	require.ErrorAs(e, err, &failed)
	require.Len(e, failed.Failed, 1)
	require.ErrorIs(e, failed.Failed["not a key"], bucket.ErrKey)
	require.Equal(e, []string{"d/b/1"}, e.list(""))
	require.NoError(e, e.b.Delete(e.ctx, op, []string{"d/b/1"}))
	require.Empty(e, e.list(""))
	e.put("d", "a key where a folder was")
	require.Equal(e, []string{"d"}, e.list(""))
}

func deleteMany(e *env) {
	var keys []string
	for i := range 30 {
		keys = append(keys, fmt.Sprintf("m/%d/%d", i%3, i))
		e.put(keys[i], "x")
	}
	require.NoError(e, e.b.Delete(e.ctx, op, keys[:29]))
	require.Equal(e, keys[29:], e.list(""))
}

// putsAndDeletes: whoever empties a folder must not hurt who fills it.
func putsAndDeletes(e *env) {
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 20 {
				key := fmt.Sprintf("pd/x/%d-%d", w, i)
				if _, err := e.putIf(key, "content", bucket.Condition{}); err != nil {
					e.Errorf("put: %v", err)
					return
				}
				if _, err := e.b.Stat(e.ctx, op, key); err != nil {
					e.Errorf("stat after put: %v", err)
				}
				if err := e.b.Delete(e.ctx, op, []string{key}); err != nil {
					e.Errorf("delete: %v", err)
				}
			}
		})
	}
	wg.Wait()
	require.Empty(e, e.list(""))
}

// Starter is implemented by test buckets that can begin a multipart upload and leave it.
type Starter interface {
	StartUpload(ctx context.Context, key string) error
}

func uploads(e *env) {
	e.put("u/there", "x")
	if s, ok := e.b.(Starter); ok {
		for _, key := range []string{"u/one", "u/two/x", "v/three"} {
			require.NoError(e, s.StartUpload(e.ctx, key))
		}
		ups, err := e.b.Uploads(e.ctx, op, "u/", false)
		require.NoError(e, err)
		require.Len(e, ups, 2)
		ups, err = e.b.Uploads(e.ctx, op, "u/", true)
		require.NoError(e, err)
		require.Len(e, ups, 2)
		ups, err = e.b.Uploads(e.ctx, op, "", true)
		require.NoError(e, err)
		require.Len(e, ups, 1)
		require.Equal(e, "v/three", ups[0].Key)
		require.NotEmpty(e, ups[0].ID)
	}
	ups, err := e.b.Uploads(e.ctx, op, "", true)
	require.NoError(e, err)
	require.Empty(e, ups)
	require.Equal(e, []string{"u/there"}, e.list(""))
}
