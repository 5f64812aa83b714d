package cluster

import (
	"hash/maphash"
	"iter"
	"maps"
)

const cowParts = 256

var cowSeed = maphash.MakeSeed()

// cowMap is an immutable map in 256 parts. An edit copies the table of parts and
// the parts it touches; all else is shared with the map it came from.
type cowMap[K comparable, V any] struct {
	parts [cowParts]map[K]V
	n     int
}

func part[K comparable](k K) int { return int(maphash.Comparable(cowSeed, k) % cowParts) }

func (m *cowMap[K, V]) get(k K) (V, bool) {
	if m == nil {
		var zero V
		return zero, false
	}
	v, ok := m.parts[part(k)][k]
	return v, ok
}

func (m *cowMap[K, V]) len() int {
	if m == nil {
		return 0
	}
	return m.n
}

func (m *cowMap[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m == nil {
			return
		}
		for _, p := range m.parts {
			for k, v := range p {
				if !yield(k, v) {
					return
				}
			}
		}
	}
}

// cowEdit collects changes; done returns the new map, or the old one when
// nothing was changed. An edit belongs to one goroutine and ends with done.
type cowEdit[K comparable, V any] struct {
	from  *cowMap[K, V]
	to    *cowMap[K, V] // nil until the first change
	owned [cowParts]bool
}

func (m *cowMap[K, V]) edit() *cowEdit[K, V] { return &cowEdit[K, V]{from: m} }

func (e *cowEdit[K, V]) get(k K) (V, bool) {
	if e.to != nil {
		return e.to.get(k)
	}
	return e.from.get(k)
}

func (e *cowEdit[K, V]) len() int {
	if e.to != nil {
		return e.to.len()
	}
	return e.from.len()
}

// own makes the part of k writable and returns its number.
func (e *cowEdit[K, V]) own(k K) int {
	if e.to == nil {
		e.to = &cowMap[K, V]{}
		if e.from != nil {
			*e.to = *e.from
		}
	}
	i := part(k)
	if !e.owned[i] {
		e.owned[i] = true
		if e.to.parts[i] == nil {
			e.to.parts[i] = map[K]V{}
		} else {
			e.to.parts[i] = maps.Clone(e.to.parts[i])
		}
	}
	return i
}

func (e *cowEdit[K, V]) set(k K, v V) {
	i := e.own(k)
	if _, had := e.to.parts[i][k]; !had {
		e.to.n++
	}
	e.to.parts[i][k] = v
}

func (e *cowEdit[K, V]) del(k K) {
	if _, had := e.get(k); !had {
		return
	}
	i := e.own(k)
	delete(e.to.parts[i], k)
	e.to.n--
}

func (e *cowEdit[K, V]) done() *cowMap[K, V] {
	if e.to == nil {
		return e.from
	}
	return e.to
}
