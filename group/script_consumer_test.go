package group

import "fmt"

func printConsumerValue(kind int16, b []byte) string {
	switch kind {
	case kindEpoch:
		var c consumer
		mustRead(c.applyEpoch(b))
		return fmt.Sprintf("epoch=%d", c.epoch)
	case kindTargetEpoch:
		var c consumer
		mustRead(c.applyTargetEpoch(b))
		return fmt.Sprintf("epoch=%d", c.target)
	case kindRegex:
		c := consumer{regexes: map[string]*regex{}}
		mustRead(c.applyRegex("", b))
		return fmt.Sprintf("topics=%v version=%d", c.regexes[""].topics, c.regexes[""].version)
	case kindMember:
		m, ok := readMember(b)
		mustRead(ok)
		s := fmt.Sprintf("client=%s topics=%v rebalance=%d%s%s%s%s", m.clientID, m.topics, m.rebalance, opt("regex", m.regex), opt("instance", m.instance), opt("rack", m.rack), opt("assignor", m.assignor))
		if m.classic != nil {
			s += fmt.Sprintf(" classic session=%d", m.classic.session)
			for _, p := range m.classic.protocols {
				s += " " + p.name
			}
		}
		return s
	case kindTarget:
		var m member
		mustRead(m.applyTarget(b))
		return m.want.String()
	case kindCurrent:
		c := consumer{owners: map[[16]byte]map[int32]string{}}
		var m member
		mustRead(c.applyCurrent(&m, b))
		return fmt.Sprintf("epoch=%d previous=%d state=%d has=%v gives=%v", m.now.epoch, m.now.previous, m.now.state, m.now.assigned, m.now.revoking)
	}
	return fmt.Sprintf("%x", b)
}

func mustRead(ok bool) {
	if !ok {
		panic("a record of the machine's own can't be read")
	}
}

// String prints topics by their ids, which are names in tests.
func (a assignment) String() string {
	s := ""
	for i, t := range a {
		if i > 0 {
			s += " "
		}
		s += fmt.Sprintf("%s%v", idName(t.topic), t.parts)
	}
	return "{" + s + "}"
}
