package cluster

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// defaultMinFree is what a snapshot and the next log file of etcd may need, and more than
// they take.
const defaultMinFree = 24 << 20

// room refuses what users add to an embedded etcd whose disk is nearly full: etcd ends the
// process when it can't write its snapshot or its log. What the cluster itself has to write
// (leases, assignments) is little and goes on, as do deletions.
func (c *Client) room() error {
	if c.embedded == nil {
		return nil
	}
	free, err := c.embedded.free()
	if err != nil {
		return err
	}
	if free < c.embedded.minFree {
		return fmt.Errorf("%w: the disk of %s is full: %d bytes are free, and changes need %d", ErrUnavailable, c.embedded.dir, free, c.embedded.minFree)
	}
	return nil
}

// free returns the free bytes of the disk that etcd is on.
func (e *Embedded) free() (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(e.dir, &s); err != nil {
		return 0, fmt.Errorf("measure the disk of etcd: %w", err)
	}
	return int64(s.Bavail) * s.Bsize, nil
}
