package partition

// boundReplay has the index written to disk when a crash would leave more than MaxReplay bytes of the log to be replayed: with large batches
// gigabytes of it are a few megabytes in the index, which stays in memory until it is full. A disk that can't take it now is asked again with the next look.
func (s *Set) boundReplay() {
	if ahead := s.log.Watermarks().Synced; ahead < s.index.FlushedCheckpoint()+uint64(s.o.MaxReplay) {
		return
	}
	if err := s.index.Flush(); err != nil {
		s.event(Debug, nil, "the index is not on disk yet; a restart after a crash would take longer", err)
	}
}
