package group

import (
	"bytes"
	"slices"
)

// assignment is partitions by topic: topics in order of their ids, partitions in order, none twice, no empty topic. It is
// never changed once it is normal.
type assignment []topicParts

type topicParts struct {
	topic [16]byte
	parts []int32
}

// with adds a partition without keeping the normal form.
func (a assignment) with(topic [16]byte, p int32) assignment {
	if n := len(a); n > 0 && a[n-1].topic == topic {
		a[n-1].parts = append(a[n-1].parts, p)
		return a
	}
	return append(a, topicParts{topic, []int32{p}})
}

// normal brings what with built into its one form.
func (a assignment) normal() assignment {
	slices.SortStableFunc(a, func(x, y topicParts) int { return bytes.Compare(x.topic[:], y.topic[:]) })
	out := a[:0]
	for _, t := range a {
		if n := len(out); n > 0 && out[n-1].topic == t.topic {
			out[n-1].parts = append(out[n-1].parts, t.parts...)
			continue
		}
		out = append(out, t)
	}
	for i := range out {
		slices.Sort(out[i].parts)
		out[i].parts = slices.Compact(out[i].parts)
	}
	return out
}

func (a assignment) parts(topic [16]byte) []int32 {
	i, ok := slices.BinarySearchFunc(a, topic, func(t topicParts, id [16]byte) int { return bytes.Compare(t.topic[:], id[:]) })
	if !ok {
		return nil
	}
	return a[i].parts
}

func (a assignment) has(topic [16]byte, p int32) bool {
	_, ok := slices.BinarySearch(a.parts(topic), p)
	return ok
}

func (a assignment) equal(b assignment) bool {
	return slices.EqualFunc(a, b, func(x, y topicParts) bool { return x.topic == y.topic && slices.Equal(x.parts, y.parts) })
}

// each calls fn for every partition.
func (a assignment) each(fn func(topic [16]byte, p int32)) {
	for _, t := range a {
		for _, p := range t.parts {
			fn(t.topic, p)
		}
	}
}

// filter returns the partitions that keep says.
func (a assignment) filter(keep func(topic [16]byte, p int32) bool) assignment {
	var out assignment
	a.each(func(topic [16]byte, p int32) {
		if keep(topic, p) {
			out = out.with(topic, p)
		}
	})
	return out
}
