package group

import "slices"

// applyConsumer applies one record of a consumer group.
func (m *Machine) applyConsumer(kind int16, k *keyReader, value []byte) bool {
	id, ok := k.bytes()
	var second []byte
	if kind != kindEpoch && kind != kindTargetEpoch && ok {
		second, ok = k.bytes()
	}
	if !k.end(ok) {
		return false
	}
	g := m.groups[string(id)]
	if g == nil || g.consumer == nil {
		if value == nil {
			return true
		}
		if g == nil {
			g = &group{id: string(id)}
		}
		c := &consumer{weight: weight{all: &m.memberBytes}, g: g, members: map[string]*member{}, regexes: map[string]*regex{}, static: map[string]string{}, owners: map[[16]byte]map[int32]string{}}
		if !c.apply(kind, string(second), value) {
			return false
		}
		g.consumer = c
		m.add(g)
		return true
	}
	ok = g.consumer.apply(kind, string(second), value)
	if g.consumer.vacant() {
		g.consumer = nil
		m.release(g)
	}
	return ok
}

func (c *consumer) apply(kind int16, name string, value []byte) bool {
	switch kind {
	case kindEpoch:
		return c.applyEpoch(value)
	case kindTargetEpoch:
		return c.applyTargetEpoch(value)
	case kindRegex:
		return c.applyRegex(name, value)
	}
	mem := c.members[name]
	if mem == nil {
		if value == nil {
			return true
		}
		mem = &member{id: name, meta: memberMeta{rebalance: -1}}
	}
	ok := false
	switch kind {
	case kindMember:
		ok = c.applyMember(mem, value)
	case kindTarget:
		ok = mem.applyTarget(value)
	case kindCurrent:
		ok = c.applyCurrent(mem, value)
	}
	if mem.hasMeta || mem.hasNow || mem.hasWant {
		c.members[name] = mem
	} else {
		delete(c.members, name)
	}
	return ok
}

func (c *consumer) applyEpoch(value []byte) bool {
	if value == nil {
		c.epoch, c.hash, c.has.epoch = 0, 0, false
		return true
	}
	d := openValue(value)
	epoch, hash := d.int32(), int64(0)
	d.tags(func(tag uint64, f *decoder) {
		if tag == 0 {
			hash = f.int64()
		}
	})
	if d.bad || len(d.b) != 0 {
		return false
	}
	c.epoch, c.hash, c.has.epoch = epoch, hash, true
	return true
}

func (c *consumer) appendEpoch() []byte {
	e := newValue()
	e.int32(c.epoch)
	if c.hash == 0 {
		e.noTags()
		return e.b
	}
	e.uvarint(1)
	e.uvarint(0)
	e.uvarint(8)
	e.int64(c.hash)
	return e.b
}

func (c *consumer) applyTargetEpoch(value []byte) bool {
	if value == nil {
		c.target, c.has.target = 0, false
		return true
	}
	d := openValue(value)
	epoch := d.int32()
	if !d.end() {
		return false
	}
	c.target, c.has.target = epoch, true
	return true
}

func appendTargetEpoch(epoch int32) []byte {
	e := newValue()
	e.int32(epoch)
	e.noTags()
	return e.b
}

func (c *consumer) applyRegex(pattern string, value []byte) bool {
	if value == nil {
		delete(c.regexes, pattern)
		return true
	}
	d := openValue(value)
	r := &regex{topics: d.strings(), version: d.int64(), timestamp: d.int64()}
	if !d.end() {
		return false
	}
	c.regexes[pattern] = r
	return true
}

func (r *regex) append() []byte {
	e := newValue()
	e.strings(r.topics)
	e.int64(r.version)
	e.int64(r.timestamp)
	e.noTags()
	return e.b
}

func (c *consumer) applyMember(mem *member, value []byte) bool {
	meta, ok := memberMeta{rebalance: -1}, true
	if value != nil {
		if meta, ok = readMember(value); !ok {
			return false
		}
	}
	size := len(value)
	if value != nil {
		size += memberOverhead
	}
	c.grow(size - mem.bytes)
	mem.bytes = size
	if old := mem.meta.instance; old != nil && c.static[*old] == mem.id {
		delete(c.static, *old)
	}
	mem.meta, mem.hasMeta = meta, value != nil
	if meta.instance != nil {
		c.static[*meta.instance] = mem.id
	}
	return true
}

func readMember(value []byte) (memberMeta, bool) {
	d := openValue(value)
	meta := memberMeta{
		instance: d.nullable(), rack: d.nullable(), clientID: d.string(), host: d.string(), topics: d.strings(),
		regex: d.nullable(), rebalance: d.int32(), assignor: d.nullable(),
	}
	d.tags(func(tag uint64, f *decoder) {
		if tag != 0 {
			return
		}
		// A nullable structure: one byte says whether it is there.
		if f.int8() < 0 {
			return
		}
		cm := &classicMeta{session: f.int32()}
		for range max(f.length(3), 0) {
			cm.protocols = append(cm.protocols, protocol{f.string(), f.bytes()})
			f.tags(nil)
		}
		f.tags(nil)
		meta.classic = cm
	})
	if meta.classic != nil && len(meta.classic.protocols) == 0 {
		d.bad = true
	}
	return meta, !d.bad && len(d.b) == 0
}

func (meta *memberMeta) append() []byte {
	e := newValue()
	e.nullable(meta.instance)
	e.nullable(meta.rack)
	e.string(meta.clientID)
	e.string(meta.host)
	e.strings(meta.topics)
	e.nullable(meta.regex)
	e.int32(meta.rebalance)
	e.nullable(meta.assignor)
	if meta.classic == nil {
		e.noTags()
		return e.b
	}
	f := &encoder{}
	f.int8(1)
	f.int32(meta.classic.session)
	f.uvarint(len(meta.classic.protocols) + 1)
	for _, p := range meta.classic.protocols {
		f.string(p.name)
		f.bytes(p.meta)
		f.noTags()
	}
	f.noTags()
	e.uvarint(1)
	e.uvarint(0)
	e.uvarint(len(f.b))
	e.b = append(e.b, f.b...)
	return e.b
}

func (m *member) applyTarget(value []byte) bool {
	if value == nil {
		m.want, m.hasWant = nil, false
		return true
	}
	d := openValue(value)
	a := d.assignment()
	if !d.end() {
		return false
	}
	m.want, m.hasWant = a, true
	return true
}

func appendTarget(a assignment) []byte {
	e := newValue()
	e.assignment(a)
	e.noTags()
	return e.b
}

func (c *consumer) applyCurrent(mem *member, value []byte) bool {
	var now current
	if value != nil {
		d := openValue(value)
		now = current{epoch: d.int32(), previous: d.int32(), state: d.int8(), assigned: d.assignment(), revoking: d.assignment()}
		if !d.end() {
			return false
		}
	}
	release := func(topic [16]byte, p int32) {
		if c.owners[topic][p] != mem.id {
			return
		}
		if delete(c.owners[topic], p); len(c.owners[topic]) == 0 {
			delete(c.owners, topic)
		}
	}
	own := func(topic [16]byte, p int32) {
		if c.owners[topic] == nil {
			c.owners[topic] = map[int32]string{}
		}
		c.owners[topic][p] = mem.id
	}
	mem.now.assigned.each(release)
	mem.now.revoking.each(release)
	mem.now, mem.hasNow = now, value != nil
	now.assigned.each(own)
	now.revoking.each(own)
	return true
}

func (n *current) append() []byte {
	e := newValue()
	e.int32(n.epoch)
	e.int32(n.previous)
	e.int8(n.state)
	e.assignment(n.assigned)
	e.assignment(n.revoking)
	e.noTags()
	return e.b
}

func (c *consumer) snapshot(yield func(Record) bool) bool {
	id := c.g.id
	if c.has.epoch && !yield(Record{appendKey(nil, kindEpoch, id), c.appendEpoch()}) ||
		c.has.target && !yield(Record{appendKey(nil, kindTargetEpoch, id), appendTargetEpoch(c.target)}) {
		return false
	}
	for _, pattern := range sortedKeys(c.regexes) {
		if !yield(Record{appendKey(nil, kindRegex, id, pattern), c.regexes[pattern].append()}) {
			return false
		}
	}
	for _, name := range sortedKeys(c.members) {
		mem := c.members[name]
		if mem.hasMeta && !yield(Record{appendKey(nil, kindMember, id, name), mem.meta.append()}) ||
			mem.hasWant && !yield(Record{appendKey(nil, kindTarget, id, name), appendTarget(mem.want)}) ||
			mem.hasNow && !yield(Record{appendKey(nil, kindCurrent, id, name), mem.now.append()}) {
			return false
		}
	}
	return true
}

// emitRemoval emits the tombstones of a member.
func (c *consumer) emitRemoval(m *Machine, id string) {
	c.cancelTimers(m, id)
	mem := c.members[id]
	if mem.hasNow {
		m.emitKey(kindCurrent, nil, c.g.id, id)
	}
	if mem.hasWant {
		m.emitKey(kindTarget, nil, c.g.id, id)
	}
	if mem.hasMeta {
		m.emitKey(kindMember, nil, c.g.id, id)
	}
}

// emitConsumerTombstones emits the tombstones of all of a consumer group.
func (m *Machine) emitConsumerTombstones(g *group) {
	c := g.consumer
	for _, id := range sortedKeys(c.members) {
		c.emitRemoval(m, id)
	}
	for _, pattern := range sortedKeys(c.regexes) {
		m.emitKey(kindRegex, nil, g.id, pattern)
	}
	if c.has.target {
		m.emitKey(kindTargetEpoch, nil, g.id)
	}
	if c.has.epoch {
		m.emitKey(kindEpoch, nil, g.id)
	}
}

func (c *consumer) emitMember(m *Machine, id string, meta memberMeta) {
	meta.topics = slices.Clone(meta.topics)
	m.emitKey(kindMember, meta.append(), c.g.id, id)
}
