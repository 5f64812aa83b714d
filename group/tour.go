package group

// Tour goes through all committed offsets of a machine bit by bit, so that nobody waits long for the machine. What was
// there all the time is visited exactly once; what came or went meanwhile, once or not at all.
type Tour struct {
	// Number tells tours apart: positive, and larger than that of any tour of this machine before it.
	Number uint64

	begun bool
	at    int // groups of Machine.list at and above it are done
}

// Committed is an offset that a group has committed. Topic is the zero value where it was committed before topics had ids.
type Committed struct {
	Group, Topic string
	TopicID      [16]byte
	Partition    int32
	At           int64
}

// Visit gives fn the next offsets of the tour, and returns false when there are no more. It ends soon after it has given
// more than budget of them: with the group it is at.
func (m *Machine) Visit(t *Tour, budget int, fn func(Committed)) (more bool) {
	if !t.begun {
		t.begun, t.at = true, len(m.list)
	}
	// Downwards: a group that goes is replaced by the last one of the list, which was visited already, or is new.
	for t.at = min(t.at, len(m.list)); t.at > 0 && budget > 0; {
		t.at--
		g := m.list[t.at]
		budget--
		if g.seen == t.Number {
			continue
		}
		g.seen = t.Number
		for topic, parts := range g.offsets {
			for p, o := range parts {
				budget--
				fn(Committed{g.id, topic, o.topic, p, o.at})
			}
		}
	}
	return t.at > 0
}
