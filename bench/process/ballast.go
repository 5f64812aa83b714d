package process

import (
	"errors"
	"io"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// Ballast is page cache that nobody needs. On a machine that has been up for a while free memory is scarce, and a new page
// is one that was used before. On a virtual machine with much free memory the first touch of a page is instead paid to the
// host: measured at 2 to 3 CPU seconds per GB, more than all that a broker does with it.
type Ballast struct {
	files []*os.File
}

// spared is left free.
const spared = 512 << 20

// Fill takes the memory that is free now. Nothing else is pushed out by it, and the kernel takes it back at need. It
// reads files without blocks in dir, so the disk isn't touched.
func (b *Ballast) Fill(dir string) error {
	var free int64
	err := eachLine("/proc/meminfo", func(key string, n int64) {
		if key == "MemFree" {
			free = n << 10
		}
	})
	if err != nil || free <= spared {
		return err
	}
	f, err := os.CreateTemp(dir, "ballast-*")
	if err != nil {
		return err
	}
	b.files = append(b.files, f)
	if err := errors.Join(os.Remove(f.Name()), f.Truncate(free-spared)); err != nil {
		return err
	}
	// Every processor takes a share: what takes the time is the host.
	n := int64(runtime.NumCPU())
	var g errgroup.Group
	for i := range n {
		part := io.NewSectionReader(f, (free-spared)/n*i, (free-spared)/n)
		g.Go(func() error {
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{part}, make([]byte, 1<<20))
			return err
		})
	}
	return g.Wait()
}

// Close gives the memory back.
func (b *Ballast) Close() error {
	var errs []error
	for _, f := range b.files {
		errs = append(errs, f.Close())
	}
	b.files = nil
	return errors.Join(errs...)
}
