package process

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process has used so far, and its memory now.
type Usage struct {
	At         time.Time
	User, Sys  time.Duration // CPU time
	Anonymous  int64         // resident bytes that belong to it alone
	File       int64         // resident bytes of mapped files: page cache that others could have, too
	Peak       int64         // highest resident bytes ever, both kinds
	WriteBytes int64         // bytes that it made dirty, or wrote past the page cache
	Threads    int
}

// CPU is the time used in user and kernel mode.
func (u Usage) CPU() time.Duration { return u.User + u.Sys }

// tick is the unit of /proc/PID/stat: Linux fixes it at 100 Hz for user space.
const tick = 10 * time.Millisecond

// Usage reads the process's account from /proc.
func (b *Broker) Usage() (Usage, error) { return UsageOf(b.PID) }

// Self reads this process's own account.
func Self() (Usage, error) { return UsageOf(os.Getpid()) }

// UsageOf reads any process's account from /proc.
func UsageOf(pid int) (Usage, error) {
	u := Usage{At: time.Now()}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return u, fmt.Errorf("/proc/%d/stat: %q", pid, stat)
	}
	u.User, u.Sys = ticks(f[11]), ticks(f[12])
	err = eachLine(fmt.Sprintf("/proc/%d/status", pid), func(key string, n int64) {
		switch key {
		case "RssAnon":
			u.Anonymous = n << 10
		case "RssFile":
			u.File = n << 10
		case "VmHWM":
			u.Peak = n << 10
		case "Threads":
			u.Threads = int(n)
		}
	})
	if err != nil {
		return u, err
	}
	return u, eachLine(fmt.Sprintf("/proc/%d/io", pid), func(key string, n int64) {
		if key == "write_bytes" {
			u.WriteBytes = n
		}
	})
}

func ticks(s string) time.Duration {
	n, _ := strconv.ParseInt(s, 10, 64) // the kernel writes numbers
	return time.Duration(n) * tick
}

// eachLine calls fn for the lines "key: number ..." of a file.
func eachLine(path string, fn func(key string, n int64)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		key, val, _ := strings.Cut(line, ":")
		if f := strings.Fields(val); len(f) > 0 {
			if n, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				fn(key, n)
			}
		}
	}
	return nil
}

// BucketCalls are requests and bytes of the broker's bucket, by verb.
type BucketCalls struct{ Requests, Bytes map[string]float64 }

// BucketCalls reads the counts from /metrics.
func (b *Broker) BucketCalls(ctx context.Context) (BucketCalls, error) {
	c := BucketCalls{Requests: map[string]float64{}, Bytes: map[string]float64{}}
	text, err := b.get(ctx, "/metrics")
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(text) {
		into := c.Requests
		switch {
		case strings.HasPrefix(line, "tierbroker_bucket_requests_total{"):
		case strings.HasPrefix(line, "tierbroker_bucket_bytes_total{"):
			into = c.Bytes
		default:
			continue
		}
		labels, val, _ := strings.Cut(strings.TrimSpace(line), "} ")
		n, err := strconv.ParseFloat(val, 64)
		if err != nil {
			return c, fmt.Errorf("/metrics: %q", line)
		}
		_, verb, _ := strings.Cut(labels, `verb="`)
		verb, _, _ = strings.Cut(verb, `"`)
		into[verb] += n
	}
	return c, nil
}

// Attach describes a broker that runs already. The process is found by who listens on the Kafka port.
func Attach(kafka, admin string) (*Broker, error) {
	b := &Broker{Kafka: kafka, Admin: admin}
	_, port, err := net.SplitHostPort(kafka)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	inode, err := listenInode(uint16(n))
	if err != nil {
		return nil, err
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return nil, err
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == "socket:["+inode+"]" {
			b.PID, err = strconv.Atoi(strings.Split(fd, "/")[2])
			return b, err
		}
	}
	return nil, fmt.Errorf("the process that listens on %s can't be seen from here", kafka)
}

// listenInode finds the socket that listens on a port.
func listenInode(port uint16) (string, error) {
	const listening = "0A"
	suffix := fmt.Sprintf(":%04X", port)
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == listening && strings.HasSuffix(f[1], suffix) {
				return f[9], nil
			}
		}
	}
	return "", fmt.Errorf("nobody listens on port %d", port)
}
