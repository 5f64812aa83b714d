package cache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestManyReadersFetchOnce: sixteen sequential readers in small pieces, whose objects are three times the budget. What is read ahead for one must not
// push out what another is about to read; so nearly nothing is fetched twice.
func TestManyReadersFetchOnce(t *testing.T) {
	const objects, chunks, piece = 16, 12, 12 * kib
	w := newWorld(t, Options{Bytes: 64 * 16 * kib, MaxReadAhead: 8})
	for o := range objects {
		w.object(fmt.Sprint("o", o), chunks*16*kib)
	}
	for off := int64(0); off < chunks*16*kib; off += piece {
		for o := range objects {
			w.mustRead(fmt.Sprint("o", o), off, piece)
		}
		w.idle()
	}
	require.EqualValues(t, objects*chunks, w.gets.Load(), "%+v", w.c.Stats())
}

// TestReadsAgain: readers that read all but the smallest step twice, as who gives up a read and asks again does, by turns over many objects. The
// chunks that they come back to are not among the first to go.
func TestReadsAgain(t *testing.T) {
	const objects, chunks, piece = 16, 12, 14 * kib
	w := newWorld(t, Options{Bytes: 64 * 16 * kib, MaxReadAhead: 8})
	for o := range objects {
		w.object(fmt.Sprint("o", o), chunks*16*kib)
	}
	for off := int64(0); off+piece <= chunks*16*kib; off += piece {
		for range 2 {
			for o := range objects {
				w.mustRead(fmt.Sprint("o", o), off, piece)
			}
			w.idle()
		}
	}
	require.EqualValues(t, objects*chunks, w.gets.Load(), "%+v", w.c.Stats())
}

// TestAbandonedReadAheadGoes: readers that never come back don't keep others from being read ahead for.
func TestAbandonedReadAheadGoes(t *testing.T) {
	w := newWorld(t, Options{Bytes: 64 * 16 * kib, MaxReadAhead: 8})
	for o := range 8 {
		key := fmt.Sprint("left", o)
		w.object(key, 20*16*kib)
		for i := range int64(4) {
			w.mustRead(key, i*16*kib, 16*kib)
			w.idle()
		}
	}
	w.object("o", 400*16*kib)
	for i := range int64(300) {
		w.mustRead("o", i*16*kib, 16*kib)
		w.idle()
	}
	before := w.c.Stats().AheadUsed
	for i := int64(300); i < 390; i++ {
		w.mustRead("o", i*16*kib, 16*kib)
		w.idle()
	}
	require.EqualValues(t, 90, w.c.Stats().AheadUsed-before)
}
