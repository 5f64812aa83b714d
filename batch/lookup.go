package batch

// FirstAtOrAfter returns the first record of the whole batch b whose timestamp is at
// least ts (milliseconds since 1970) and whose offset is at least minOffset. ok is false
// when there is none. A header whose max timestamp is below ts is believed. Errors as
// [Iterate].
func FirstAtOrAfter(b []byte, ts, minOffset int64) (offset, timestamp int64, ok bool, err error) {
	h, one, _, err := Next(b)
	if err != nil || h.MaxTimestamp < ts || h.LastOffset() < minOffset {
		return 0, 0, false, err
	}
	var c cursor
	if err := c.open(one, &h, DefaultMaxPlain); err != nil {
		return 0, 0, false, err
	}
	defer c.close()
	for {
		more, err := c.next()
		if !more || err != nil {
			return 0, 0, false, err
		}
		offset, timestamp = h.BaseOffset+int64(c.rec.offsetDelta), c.rec.timestamp(&h)
		if timestamp >= ts && offset >= minOffset {
			return offset, timestamp, true, nil
		}
	}
}

// MaxTimestamp returns the largest timestamp in the whole batch b and the first record
// that has it; -1 and -1 for a batch without records. A record that has the header's max
// timestamp ends the search. Errors as [Iterate].
func MaxTimestamp(b []byte) (offset, timestamp int64, err error) {
	h, one, _, err := Next(b)
	if err != nil {
		return 0, 0, err
	}
	var c cursor
	if err := c.open(one, &h, DefaultMaxPlain); err != nil {
		return 0, 0, err
	}
	defer c.close()
	offset, timestamp = -1, -1
	for {
		more, err := c.next()
		if err != nil {
			return 0, 0, err
		}
		if !more {
			return offset, timestamp, nil
		}
		if t := c.rec.timestamp(&h); offset < 0 || t > timestamp {
			offset, timestamp = h.BaseOffset+int64(c.rec.offsetDelta), t
			if t == h.MaxTimestamp {
				return offset, timestamp, nil
			}
		}
	}
}
