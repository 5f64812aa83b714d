package partition

import "sync/atomic"

// traffic counts bytes of batches since the partition was opened here: what places it by load.
type traffic struct{ in, out atomic.Int64 }

// CountIn notes bytes that clients have written, CountOut bytes that they have read.
func (p *Partition) CountIn(n int) { p.traffic.in.Add(int64(n)) }

// CountOut is the other half of CountIn.
func (p *Partition) CountOut(n int) { p.traffic.out.Add(int64(n)) }

// Traffic returns the bytes written and read since the partition was opened here; they fall to 0 when it is opened again.
func (p *Partition) Traffic() (in, out int64) { return p.traffic.in.Load(), p.traffic.out.Load() }
