package kafka

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// shelved is a buffer of a class, as newBuffer makes it.
func shelved(class int) *buffer { return &buffer{store: make([]byte, classSize(class)), class: class} }

func TestShelfKeepsOverCollections(t *testing.T) {
	var s shelf
	s.armed = true // the test looks by itself
	b := shelved(largeClass)
	s.put(b)
	runtime.GC()
	runtime.GC()
	require.Same(t, b, s.get(largeClass))
	require.Nil(t, s.get(largeClass))
}

func TestShelfGivesUpWhatNobodyNeeds(t *testing.T) {
	var s shelf
	s.armed = true
	for range 3 {
		s.put(shelved(largeClass))
	}
	s.look()
	require.Equal(t, 3*classSize(largeClass), s.bytes, "what has just come is kept")
	s.put(s.get(largeClass))
	s.look()
	require.Equal(t, classSize(largeClass), s.bytes, "one was needed")
	require.True(t, s.armed)
	s.look()
	require.Zero(t, s.bytes)
	require.False(t, s.armed, "nothing is left to look at")
	require.Nil(t, s.get(largeClass))
}

func TestShelfIsBounded(t *testing.T) {
	var s shelf
	s.armed = true
	last := classes - 1
	s.put(shelved(largeClass))
	for range 2 * shelfBytes / classSize(last) {
		s.put(shelved(last))
	}
	require.Equal(t, shelfBytes, s.bytes, "the small one made room for the last of those that fit")
	s.put(shelved(largeClass))
	require.Equal(t, shelfBytes, s.bytes)
	for range shelfBytes / classSize(last) {
		require.NotNil(t, s.get(last))
	}
	require.Nil(t, s.get(last))
	require.Zero(t, s.bytes)
}

func TestShelfGivesLargerOnes(t *testing.T) {
	var s shelf
	s.armed = true
	s.put(shelved(largeClass + 8))
	require.Nil(t, s.get(largeClass+9), "too small")
	b := s.get(largeClass)
	require.NotNil(t, b)
	require.Len(t, b.store, classSize(largeClass+8))
	s.put(b)
	s.put(shelved(largeClass + 9))
	require.Same(t, b, s.get(largeClass), "the smallest that does")
	require.Nil(t, s.get(largeClass), "more than four times as large")
	require.NotNil(t, s.get(largeClass+1))
}
