package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// proxy stands between a client and a broker. It replaces the broker's address in responses by
// its own, so that clients stay with it, records the versions of all requests, and caps those
// that ApiVersions announces.
type proxy struct {
	upstream string
	caps     map[int16]int16 // the most to announce; -1 hides the API
	host     string
	port     int32
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	seen  map[int16]map[int16]bool
}

// oldest is what a Kafka 4 broker accepts at least, plus what clients can't do without (a
// controller in Metadata). APIs that are not here are capped at their minimum as well.
func oldest(exceptions map[int16]int16) map[int16]int16 {
	caps := map[int16]int16{
		0: 3, 1: 4, 2: 1, 3: 1, 10: 0, 18: 0, 19: 2, 20: 1, 21: 0, 22: 0, 23: 2, 32: 1, 33: 0, 37: 0, 44: 0,
		75: -1, // DescribeTopicPartitions: without it, clients use Metadata
	}
	maps.Copy(caps, exceptions)
	return caps
}

func (x *proxy) start() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	x.listener, x.conns, x.seen = l, make(map[net.Conn]struct{}), make(map[int16]map[int16]bool)
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(port)
	x.host, x.port = host, int32(n)
	x.wg.Add(1)
	go x.accept()
	return l.Addr().String(), err
}

func (x *proxy) stop() {
	x.listener.Close() //nolint:errcheck // nothing is behind it any longer
	x.mu.Lock()
	for c := range x.conns {
		c.Close() //nolint:errcheck // the same
	}
	x.mu.Unlock()
	x.wg.Wait()
}

func (x *proxy) accept() {
	defer x.wg.Done()
	for {
		client, err := x.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", x.upstream)
		if err != nil {
			client.Close() //nolint:errcheck // the client learns it as it would without a proxy
			continue
		}
		x.mu.Lock()
		x.conns[client], x.conns[broker] = struct{}{}, struct{}{}
		x.mu.Unlock()
		p := &pair{x: x, pending: make(map[int32][2]int16)}
		x.wg.Add(2)
		go x.pump(client, broker, p.request)
		go x.pump(broker, client, p.response)
	}
}

// pump moves frames from one side to the other until one ends, then ends both.
func (x *proxy) pump(from, to net.Conn, change func([]byte) ([]byte, error)) {
	defer x.wg.Done()
	defer func() {
		x.mu.Lock()
		delete(x.conns, from)
		x.mu.Unlock()
		from.Close() //nolint:errcheck // either side may have closed it
		to.Close()   //nolint:errcheck // the same
	}()
	for {
		var size [4]byte
		if _, err := io.ReadFull(from, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		frame, err := change(frame)
		if err != nil {
			return
		}
		binary.BigEndian.PutUint32(size[:], uint32(len(frame)))
		if _, err := (&net.Buffers{size[:], frame}).WriteTo(to); err != nil {
			return
		}
	}
}

// pair is one client connection and its requests under way by correlation id.
type pair struct {
	x       *proxy
	mu      sync.Mutex
	pending map[int32][2]int16
}

func (p *pair) request(frame []byte) ([]byte, error) {
	if len(frame) < 8 {
		return nil, errors.New("short request")
	}
	key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	p.mu.Lock()
	p.pending[int32(binary.BigEndian.Uint32(frame[4:]))] = [2]int16{key, version}
	p.mu.Unlock()
	p.x.mu.Lock()
	if p.x.seen[key] == nil {
		p.x.seen[key] = make(map[int16]bool)
	}
	p.x.seen[key][version] = true
	p.x.mu.Unlock()
	return frame, nil
}

func (p *pair) response(frame []byte) ([]byte, error) {
	if len(frame) < 4 {
		return nil, errors.New("short response")
	}
	correlation := int32(binary.BigEndian.Uint32(frame))
	p.mu.Lock()
	of, ok := p.pending[correlation]
	delete(p.pending, correlation)
	p.mu.Unlock()
	if !ok {
		return nil, errors.New("a response without a request")
	}
	key, version := of[0], of[1]
	if key != 18 && key != 3 && key != 10 && key != 60 {
		return frame, nil
	}
	if key == 18 && len(frame) >= 6 && frame[4] == 0 && frame[5] == 35 {
		version = 0 // the broker does not know the version and answers in the oldest
	}
	resp := kmsg.ResponseForKey(key)
	resp.SetVersion(version)
	head := 4
	if resp.IsFlexible() && key != 18 {
		head = 5
	}
	if err := resp.ReadFrom(frame[head:]); err != nil {
		return nil, fmt.Errorf("response to API %d version %d: %w", key, version, err)
	}
	p.x.rewrite(resp)
	return resp.AppendTo(frame[:head:head]), nil
}

func (x *proxy) rewrite(resp kmsg.Response) {
	switch r := resp.(type) {
	case *kmsg.ApiVersionsResponse:
		x.capVersions(r)
	case *kmsg.MetadataResponse:
		for i := range r.Brokers {
			r.Brokers[i].Host, r.Brokers[i].Port = x.host, x.port
		}
	case *kmsg.FindCoordinatorResponse:
		if r.ErrorCode == 0 {
			r.Host, r.Port = x.host, x.port
		}
		for i := range r.Coordinators {
			if r.Coordinators[i].ErrorCode == 0 {
				r.Coordinators[i].Host, r.Coordinators[i].Port = x.host, x.port
			}
		}
	case *kmsg.DescribeClusterResponse:
		for i := range r.Brokers {
			r.Brokers[i].Host, r.Brokers[i].Port = x.host, x.port
		}
	}
}

func (x *proxy) capVersions(r *kmsg.ApiVersionsResponse) {
	if x.caps == nil {
		return
	}
	r.ApiKeys = slices.DeleteFunc(r.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return x.caps[k.ApiKey] < 0 })
	for i := range r.ApiKeys {
		k := &r.ApiKeys[i]
		most, ok := x.caps[k.ApiKey]
		if !ok {
			most = k.MinVersion
		}
		k.MaxVersion = min(k.MaxVersion, max(most, k.MinVersion))
	}
}

// used lists the versions that were used of each API.
func (x *proxy) used() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var list []string
	for _, key := range slices.Sorted(maps.Keys(x.seen)) {
		var versions []string
		for _, v := range slices.Sorted(maps.Keys(x.seen[key])) {
			versions = append(versions, strconv.Itoa(int(v)))
		}
		list = append(list, kmsg.NameForKey(key)+" "+strings.Join(versions, "+"))
	}
	return strings.Join(list, ", ")
}

// checkVersions checks that Produce and Fetch were used in the versions that the mode is about.
func (x *proxy) checkVersions(mode string, newest [2]int16) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, want := range newest {
		if mode == "old" {
			want = x.caps[int16(key)]
		}
		if !x.seen[int16(key)][want] {
			return fmt.Errorf("%s was not used in version %d", kmsg.NameForKey(int16(key)), want)
		}
		for v := range x.seen[int16(key)] {
			if v > want {
				return fmt.Errorf("%s was used in version %d, over %d", kmsg.NameForKey(int16(key)), v, want)
			}
		}
	}
	return nil
}
